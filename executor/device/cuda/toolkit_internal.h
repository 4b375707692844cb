// The driver and NVIDIA's libraries, opened when they are first asked for: what devices and kernels share.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include <belfry/executor/device/cuda/driver_internal.h>
#include <belfry/executor/device/cuda/libraries_internal.h>

namespace belfry {

/// Any thread may ask. Making one opens nothing, so that kernels can be chosen where there is no driver.
class CudaToolkit {
 public:
  /// The started driver. MissingError that says what is missing and what to do.
  const CudaDriver& driver();
  /// The handle of dlopen. MissingError as above.
  void* library(CudaLibrary which);
  std::atomic<int> failed_gpus{0};  ///< of those that are in use

 private:
  std::mutex mutex_;
  std::optional<OpenedDriver> driver_;
  CudaLibraries libraries_;
};

/// DeviceError "CALL gives CUDA_ERROR_… (n): text" for any code but success.
void check_driver(const CudaDriver& driver, CUresult code, const char* call);

}  // namespace belfry
