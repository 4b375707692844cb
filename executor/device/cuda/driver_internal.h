// The CUDA driver as one table of function pointers. Nothing links libcuda: it is opened when GPUs are asked for.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

namespace belfry {

/// A field per function, under the function's own name. The header renames some (cuMemAlloc is cuMemAlloc_v2): a field is
/// renamed with them, wherever the header is included.
struct CudaDriver {
  // Start, devices, contexts.
  decltype(&::cuInit) cuInit;
  decltype(&::cuDriverGetVersion) cuDriverGetVersion;
  decltype(&::cuGetErrorName) cuGetErrorName;
  decltype(&::cuGetErrorString) cuGetErrorString;
  decltype(&::cuDeviceGetCount) cuDeviceGetCount;
  decltype(&::cuDeviceGet) cuDeviceGet;
  decltype(&::cuDeviceGetName) cuDeviceGetName;
  decltype(&::cuDeviceGetUuid) cuDeviceGetUuid;
  decltype(&::cuDeviceTotalMem) cuDeviceTotalMem;
  decltype(&::cuDeviceGetAttribute) cuDeviceGetAttribute;
  decltype(&::cuDeviceGetPCIBusId) cuDeviceGetPCIBusId;
  decltype(&::cuDeviceCanAccessPeer) cuDeviceCanAccessPeer;
  decltype(&::cuDevicePrimaryCtxRetain) cuDevicePrimaryCtxRetain;
  decltype(&::cuDevicePrimaryCtxRelease) cuDevicePrimaryCtxRelease;
  decltype(&::cuCtxSetCurrent) cuCtxSetCurrent;
  decltype(&::cuCtxGetDevice) cuCtxGetDevice;
  decltype(&::cuCtxEnablePeerAccess) cuCtxEnablePeerAccess;
  // Memory.
  decltype(&::cuMemAlloc) cuMemAlloc;
  decltype(&::cuMemFree) cuMemFree;
  decltype(&::cuMemGetInfo) cuMemGetInfo;
  decltype(&::cuMemHostAlloc) cuMemHostAlloc;
  decltype(&::cuMemFreeHost) cuMemFreeHost;
  decltype(&::cuMemHostRegister) cuMemHostRegister;
  decltype(&::cuMemHostUnregister) cuMemHostUnregister;
  decltype(&::cuMemcpyAsync) cuMemcpyAsync;
  decltype(&::cuMemcpy2DAsync) cuMemcpy2DAsync;
  decltype(&::cuMemcpyPeerAsync) cuMemcpyPeerAsync;
  decltype(&::cuMemsetD8Async) cuMemsetD8Async;
  decltype(&::cuMemsetD32Async) cuMemsetD32Async;
  // Streams and events.
  decltype(&::cuCtxGetStreamPriorityRange) cuCtxGetStreamPriorityRange;
  decltype(&::cuStreamCreateWithPriority) cuStreamCreateWithPriority;
  decltype(&::cuStreamDestroy) cuStreamDestroy;
  decltype(&::cuStreamSynchronize) cuStreamSynchronize;
  decltype(&::cuStreamQuery) cuStreamQuery;
  decltype(&::cuStreamWaitEvent) cuStreamWaitEvent;
  decltype(&::cuStreamWaitValue64) cuStreamWaitValue64;
  decltype(&::cuStreamWriteValue64) cuStreamWriteValue64;
  decltype(&::cuLaunchHostFunc) cuLaunchHostFunc;
  decltype(&::cuEventCreate) cuEventCreate;
  decltype(&::cuEventDestroy) cuEventDestroy;
  decltype(&::cuEventRecord) cuEventRecord;
  decltype(&::cuEventQuery) cuEventQuery;
  decltype(&::cuEventSynchronize) cuEventSynchronize;
  decltype(&::cuEventElapsedTime) cuEventElapsedTime;
  // Capture and graphs.
  decltype(&::cuStreamBeginCapture) cuStreamBeginCapture;
  decltype(&::cuStreamEndCapture) cuStreamEndCapture;
  decltype(&::cuStreamIsCapturing) cuStreamIsCapturing;
  decltype(&::cuStreamGetCaptureInfo) cuStreamGetCaptureInfo;
  decltype(&::cuThreadExchangeStreamCaptureMode) cuThreadExchangeStreamCaptureMode;
  decltype(&::cuGraphInstantiate) cuGraphInstantiate;
  decltype(&::cuGraphUpload) cuGraphUpload;
  decltype(&::cuGraphLaunch) cuGraphLaunch;
  decltype(&::cuGraphExecUpdate) cuGraphExecUpdate;
  decltype(&::cuGraphGetNodes) cuGraphGetNodes;
  decltype(&::cuGraphExecDestroy) cuGraphExecDestroy;
  decltype(&::cuGraphDestroy) cuGraphDestroy;
  // Code.
  decltype(&::cuLibraryLoadData) cuLibraryLoadData;
  decltype(&::cuLibraryUnload) cuLibraryUnload;
  decltype(&::cuLibraryGetKernel) cuLibraryGetKernel;
  decltype(&::cuKernelGetAttribute) cuKernelGetAttribute;
  decltype(&::cuKernelSetAttribute) cuKernelSetAttribute;
  decltype(&::cuLaunchKernelEx) cuLaunchKernelEx;
  decltype(&::cuOccupancyMaxActiveBlocksPerMultiprocessor) cuOccupancyMaxActiveBlocksPerMultiprocessor;
};
inline constexpr int kCudaDriverEntries = 63;

/// The symbols of the table, as the library exports them.
std::vector<std::string> driver_symbols();

struct OpenedDriver {
  CudaDriver table{};
  bool loaded = false;                   ///< a library was found and opened; the table is whole if `absent` is empty
  std::string path;                      ///< the file that was opened
  std::string why;                       ///< what the loader says, if it opened none
  std::vector<std::string> absent;       ///< symbols that it lacks
};

/// Opens the file that the variable BELFRY_CUDA_DRIVER names, else libcuda.so.1. It is never closed: a driver cannot be unloaded.
OpenedDriver open_driver();

/// "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected". Names the codes of a start even where the table lacks the texts.
std::string error_text(const CudaDriver& driver, CUresult code);

}  // namespace belfry
