// Asks driver and libraries what GPUs are here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/device/cuda/driver_internal.h>
#include <belfry/executor/device/cuda/gpu_facts.h>
#include <belfry/executor/device/cuda/gpu_meter.h>
#include <belfry/executor/device/cuda/libraries_internal.h>
#include <belfry/executor/device/cuda/toolkit_internal.h>

namespace belfry {

/// Fills all but `backend`. What is not there is named in `missing`, each with what to do; nothing throws.
CudaFacts probe_gpus(const OpenedDriver& driver, CudaLibraries& libraries);

/// Starts the driver. What keeps it from being used; `what` is empty if nothing does. Fills the driver's file and version.
Missing start_driver(const OpenedDriver& driver, CudaFacts& out);

/// "13.0" of 13000.
std::string cuda_version_text(int version);

/// What NVML alone knows: links, and free memory without a context. All of it by dlsym; empty answers where a call is refused.
class Nvml {
 public:
  /// `library`: the handle of dlopen, or null.
  explicit Nvml(void* library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_release() const;
  /// Of the whole card, which may have been cut into several GPUs.
  struct Memory {
    std::int64_t bytes = 0, free = -1;  ///< -1: it cannot say
  };
  Memory memory(const std::string& pci) const;
  /// All that a meter reads but the GPU's number; what it cannot say is left as it is.
  GpuReading read(const std::string& pci) const;
  bool nvlink(const std::string& pci_a, const std::string& pci_b) const;
  bool works() const { return works_; }

 private:
  void* device(const std::string& pci) const;
  void* library_ = nullptr;
  bool works_ = false;
};

/// By NVML. DeviceError where it is not there, with what to do about it.
std::unique_ptr<GpuMeter> nvml_meter(const std::shared_ptr<CudaToolkit>& toolkit, const std::vector<int>& gpus);

}  // namespace belfry
