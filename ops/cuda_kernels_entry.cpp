// The one symbol of libbelfry_cuda.so.
#include <belfry/executor/device/cuda/backend.h>
#include <belfry/executor/device/cuda/gpus_internal.h>
#include <belfry/executor/device/cuda/libraries_internal.h>

namespace belfry {
namespace {

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

constexpr CudaBackend kTable{kCudaBackendTable, sizeof(CudaFacts), BELFRY_VERSION, probe};

}  // namespace
}  // namespace belfry

extern "C" __attribute__((visibility("default"))) const belfry::CudaBackend* belfry_cuda_backend_v1() { return &belfry::kTable; }
