#include <belfry/executor/device/cuda/toolkit_internal.h>

#include <fmt/format.h>

#include <belfry/executor/device/cuda/gpus_internal.h>
#include <belfry/graph/error.h>

namespace belfry {

const CudaDriver& CudaToolkit::driver() {
  std::lock_guard lock(mutex_);
  if (!driver_) {
    OpenedDriver opened = open_driver();
    CudaFacts facts;
    if (Missing m = start_driver(opened, facts); !m.what.empty()) throw MissingError(m);
    driver_ = std::move(opened);
  }
  return driver_->table;
}

void* CudaToolkit::library(CudaLibrary which) {
  std::lock_guard lock(mutex_);
  return libraries_.open(which);
}

void check_driver(const CudaDriver& driver, CUresult code, const char* call) {
  if (code != CUDA_SUCCESS) throw DeviceError(fmt::format("{} gives {}", call, error_text(driver, code)));
}

}  // namespace belfry
