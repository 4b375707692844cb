#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdlib>

#include <belfry/executor/device/cuda/driver_internal.h>
#include <belfry/executor/device/library_file.h>

namespace belfry {
namespace {

struct Entry {
  const char* symbol;
  void** slot;
};

/// The argument is expanded before it is quoted, so that the header's renaming is in the text too.
#define TEXT(name) #name
#define ENTRY(name) Entry{TEXT(name), reinterpret_cast<void**>(&t.name)}

std::vector<Entry> entries(CudaDriver& t) {
  return {
      ENTRY(cuInit), ENTRY(cuDriverGetVersion), ENTRY(cuGetErrorName), ENTRY(cuGetErrorString), ENTRY(cuDeviceGetCount), ENTRY(cuDeviceGet), ENTRY(cuDeviceGetName),
      ENTRY(cuDeviceGetUuid), ENTRY(cuDeviceTotalMem), ENTRY(cuDeviceGetAttribute), ENTRY(cuDeviceGetPCIBusId), ENTRY(cuDeviceCanAccessPeer), ENTRY(cuDevicePrimaryCtxRetain),
      ENTRY(cuDevicePrimaryCtxRelease), ENTRY(cuCtxSetCurrent), ENTRY(cuCtxGetDevice), ENTRY(cuCtxEnablePeerAccess), ENTRY(cuMemAlloc), ENTRY(cuMemFree), ENTRY(cuMemGetInfo), ENTRY(cuMemHostAlloc),
      ENTRY(cuMemFreeHost), ENTRY(cuMemHostRegister), ENTRY(cuMemHostUnregister), ENTRY(cuMemcpyAsync), ENTRY(cuMemcpy2DAsync), ENTRY(cuMemcpyPeerAsync), ENTRY(cuMemsetD8Async), ENTRY(cuMemsetD32Async),
      ENTRY(cuCtxGetStreamPriorityRange), ENTRY(cuStreamCreateWithPriority), ENTRY(cuStreamDestroy), ENTRY(cuStreamSynchronize), ENTRY(cuStreamQuery), ENTRY(cuStreamWaitEvent),
      ENTRY(cuStreamWaitValue64), ENTRY(cuStreamWriteValue64), ENTRY(cuLaunchHostFunc), ENTRY(cuEventCreate), ENTRY(cuEventDestroy), ENTRY(cuEventRecord), ENTRY(cuEventQuery),
      ENTRY(cuEventSynchronize), ENTRY(cuEventElapsedTime), ENTRY(cuStreamBeginCapture), ENTRY(cuStreamEndCapture), ENTRY(cuStreamIsCapturing), ENTRY(cuStreamGetCaptureInfo),
      ENTRY(cuThreadExchangeStreamCaptureMode), ENTRY(cuGraphInstantiate), ENTRY(cuGraphUpload), ENTRY(cuGraphLaunch), ENTRY(cuGraphExecUpdate), ENTRY(cuGraphGetNodes),
      ENTRY(cuGraphExecDestroy), ENTRY(cuGraphDestroy), ENTRY(cuLibraryLoadData), ENTRY(cuLibraryUnload), ENTRY(cuLibraryGetKernel), ENTRY(cuKernelGetAttribute),
      ENTRY(cuKernelSetAttribute), ENTRY(cuLaunchKernelEx), ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor)};
}

static_assert(sizeof(CudaDriver) == kCudaDriverEntries * sizeof(void*));

const char* start_code(CUresult code) {
  switch (code) {
    case CUDA_ERROR_NOT_INITIALIZED: return "CUDA_ERROR_NOT_INITIALIZED";
    case CUDA_ERROR_STUB_LIBRARY: return "CUDA_ERROR_STUB_LIBRARY";
    case CUDA_ERROR_NO_DEVICE: return "CUDA_ERROR_NO_DEVICE";
    case CUDA_ERROR_SYSTEM_NOT_READY: return "CUDA_ERROR_SYSTEM_NOT_READY";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: return "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: return "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE";
    default: return "a code of the driver";
  }
}

}  // namespace

std::vector<std::string> driver_symbols() {
  CudaDriver table{};
  std::vector<std::string> out;
  for (const Entry& e : entries(table)) out.push_back(e.symbol);
  return out;
}

OpenedDriver open_driver() {
  OpenedDriver out;
  const char* named = std::getenv("BELFRY_CUDA_DRIVER");
  const char* file = named && *named ? named : "libcuda.so.1";
  const std::string flaw = library_flaw(file);
  void* library = flaw.empty() ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) {
    out.why = flaw.empty() ? dlerror() : fmt::format("{} {}", file, flaw);
    return out;
  }
  out.loaded = true;
  link_map* map = nullptr;
  out.path = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && *map->l_name ? map->l_name : file;
  for (const Entry& e : entries(out.table)) {
    *e.slot = dlsym(library, e.symbol);
    if (!*e.slot) out.absent.push_back(e.symbol);
  }
  return out;
}

std::string error_text(const CudaDriver& driver, CUresult code) {
  const char *name = nullptr, *text = nullptr;
  if (driver.cuGetErrorName) driver.cuGetErrorName(code, &name);
  if (driver.cuGetErrorString) driver.cuGetErrorString(code, &text);
  return fmt::format("{} ({}){}{}", name ? name : start_code(code), static_cast<int>(code), text ? ": " : "", text ? text : "");
}

}  // namespace belfry
