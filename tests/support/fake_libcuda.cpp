// What cuDNN asks libcuda.so.1 for while it makes plans of engines that it compiles at run time, on a machine without a driver:
// code can be "loaded", all else is refused as NVIDIA's own stub library does. Nothing runs with it.
extern "C" {

int cuLibraryLoadData(void** library, ...) {
  *library = library;
  return 0;
}
int cuLibraryGetKernel(void** kernel, ...) {
  *kernel = kernel;
  return 0;
}
int cuLibraryUnload(void*) { return 0; }

#define BELFRY_REFUSED(name) \
  int name() { return 34; }  // CUDA_ERROR_STUB_LIBRARY
BELFRY_REFUSED(cuCtxGetCurrent)
BELFRY_REFUSED(cuCtxGetLimit)
BELFRY_REFUSED(cuCtxPopCurrent)
BELFRY_REFUSED(cuCtxPushCurrent)
BELFRY_REFUSED(cuDeviceGet)
BELFRY_REFUSED(cuDeviceGetCount)
BELFRY_REFUSED(cuDriverGetVersion)
BELFRY_REFUSED(cuGetErrorName)
BELFRY_REFUSED(cuGetErrorString)
BELFRY_REFUSED(cuKernelGetAttribute)
BELFRY_REFUSED(cuKernelSetAttribute)
BELFRY_REFUSED(cuLaunchCooperativeKernel)
BELFRY_REFUSED(cuLaunchKernel)
BELFRY_REFUSED(cuLaunchKernelEx)
BELFRY_REFUSED(cuLibraryLoadFromFile)
BELFRY_REFUSED(cuLinkAddData)
BELFRY_REFUSED(cuLinkComplete)
BELFRY_REFUSED(cuLinkCreate)
BELFRY_REFUSED(cuLinkDestroy)
BELFRY_REFUSED(cuOccupancyMaxPotentialClusterSize)
BELFRY_REFUSED(cuStreamGetCtx)
BELFRY_REFUSED(cuInit)
BELFRY_REFUSED(cuGetProcAddress)

}
