#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/elementwise_internal.h>

namespace belfry {

/// The elements as they are; nothing where input and output share them.
std::vector<Kernel> identity_cuda(const GpuCodeRef& code) {
  std::vector<Kernel> out;
  for (const char* op : {"identity", "reshape", "batch_statistic"})
    out.push_back({.name = "nvrtc_copy", .op = op, .supports = [](const KernelRequest&) { return Support{}; },
                   .prepare = [code](const KernelRequest& r) { return elementwise({{stretched(r.inputs[0], r.inputs[0].shape)}, {}, r.inputs[0].shape}).unless_same().prepare(*code); }});
  return out;
}

}  // namespace belfry
