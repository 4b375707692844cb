#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/elementwise_internal.h>

#include <fmt/format.h>

namespace belfry {

/// Every element is added in input order.
std::vector<Kernel> add_n_cuda(const GpuCodeRef& code) {
  constexpr std::size_t kMost = 64;
  return {{.name = "nvrtc_elementwise", .op = "add_n",
           .supports = [](const KernelRequest& r) { return r.inputs.size() > kMost ? refuse(fmt::format("{} inputs", r.inputs.size())) : takes_on_gpu(r, {f32, f64, i32, i64, f16, bf16}); },
           .prepare = [code](const KernelRequest& r) {
             ScalarTree t{{}, {{r.outputs[0].dtype, "", {}}}, r.outputs[0].shape};
             for (std::size_t i = 0; i < r.inputs.size(); ++i) {
               t.inputs.push_back(stretched(r.inputs[i], t.shape));
               t.steps[0].text += fmt::format("{}x{}", i ? " + " : "", i);
               t.steps[0].operands.emplace_back(fmt::format("x{}", i), i);
             }
             return elementwise(t).prepare(*code);
           },
           .halves = true}};
}

}  // namespace belfry
