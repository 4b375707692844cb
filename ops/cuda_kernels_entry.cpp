// The one symbol of libbelfry_cuda.so.
#include <belfry/executor/device/cuda/backend.h>
#include <belfry/executor/device/cuda/cuda_device_internal.h>
#include <belfry/executor/device/cuda/gpus_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry_build.h>

namespace belfry {
namespace {

/// Devices and kernels share it; a driver is never closed.
const std::shared_ptr<CudaToolkit>& toolkit() {
  static const auto one = std::make_shared<CudaToolkit>();
  return one;
}

void probe(CudaFacts& out) noexcept {
  const std::string file = out.backend;
  try {
    CudaLibraries libraries;
    out = probe_gpus(open_driver(), libraries);
  } catch (const std::exception& e) {
    out.missing.push_back({"GPU", e.what(), "please report it"});
  }
  out.backend = file;
}

KernelTable kernels() { return cuda_kernels(toolkit()); }

std::shared_ptr<Device> open(const DeviceId& device) { return open_cuda_device(toolkit(), device); }

std::unique_ptr<GpuMeter> meter(const std::vector<int>& gpus) { return nvml_meter(toolkit(), gpus); }

constexpr CudaBackend kTable{kCudaBackendTable, sizeof(CudaFacts), BELFRY_VERSION, BELFRY_BUILD, probe, kernels, open, meter};

}  // namespace
}  // namespace belfry

extern "C" __attribute__((visibility("default"))) const belfry::CudaBackend* belfry_cuda_backend_v1() { return &belfry::kTable; }
