// The CUDA backend as the rest of Belfry sees it: a shared library of its own, opened when GPUs are asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/device/cuda/gpu_facts.h>
#include <belfry/executor/device/cuda/gpu_meter.h>
#include <belfry/executor/device/device.h>
#include <belfry/graph/device_id.h>

namespace belfry {

class KernelTable;

/// What the backend's library gives; whoever changes the table changes `kCudaBackendTable`.
struct CudaBackend {
  std::uint32_t table;                         ///< kCudaBackendTable of the backend
  std::uint32_t facts_size;                    ///< sizeof(CudaFacts) there
  const char* belfry;                          ///< the version that it was built with
  const char* build;                           ///< of the headers that both see, and of the compiler
  void (*probe)(CudaFacts& out) noexcept;      ///< fills all but `backend`
  KernelTable (*kernels)();                    ///< needs no driver
  std::shared_ptr<Device> (*open)(const DeviceId& device);  ///< DeviceError
  std::unique_ptr<GpuMeter> (*meter)(const std::vector<int>& gpus);  ///< DeviceError that says what is missing and what to do
};
inline constexpr std::uint32_t kCudaBackendTable = 6;

/// The one symbol of the library.
using CudaBackendEntry = const CudaBackend* (*)();
inline constexpr const char* kCudaBackendSymbol = "belfry_cuda_backend_v1";

struct OpenedCudaBackend {
  const CudaBackend* table = nullptr;          ///< null: `missing` says why
  std::string file;
  Missing missing;
};

/// Opens the file that the variable BELFRY_CUDA_BACKEND names, else libbelfry_cuda.so beside the library that holds this function.
OpenedCudaBackend open_cuda_backend();

/// Opens the backend and asks it. Never throws for what a machine lacks: `missing` tells it, the backend's own absence included.
CudaFacts cuda_facts();

}  // namespace belfry
