// Stands for the files that call cuDNN where its headers are missing.
#if !__has_include(<cudnn.h>)
#include <belfry/graph/error.h>
#include <belfry/ops/cuda/cudnn_internal.h>

namespace belfry::cudnn {

namespace {
constexpr const char* kAbsent = "Belfry was built without cuDNN's headers";
}

bool built() { return false; }
std::shared_ptr<Target> current_target(CudaToolkit&) { throw DeviceError(kAbsent); }
std::shared_ptr<Target> described_target(CudaToolkit&, const std::string&) { throw DeviceError(kAbsent); }
std::unique_ptr<Engine> find(const std::shared_ptr<Target>&, const Graph&, const Wanted&) { throw DeviceError(kAbsent); }
std::vector<EngineFacts> fitting(const std::shared_ptr<Target>&, const Graph&, const Wanted&, std::size_t) { throw DeviceError(kAbsent); }
std::vector<EngineFacts> all(const std::shared_ptr<Target>&, const Graph&) { throw DeviceError(kAbsent); }

}  // namespace belfry::cudnn
#endif
