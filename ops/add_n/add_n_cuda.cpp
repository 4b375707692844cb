#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/elementwise_internal.h>

#include <fmt/format.h>

namespace belfry {

/// Every element is added in input order.
std::vector<Kernel> add_n_cuda(const GpuCodeRef& code) {
  constexpr std::size_t kMost = 64;
  Kernel out = elementwise_kernel(code, "add_n", {f32, f64, i32, i64, f16, bf16});
  out.supports = [takes = out.supports](const KernelRequest& r) { return r.inputs.size() > kMost ? refuse(fmt::format("{} inputs", r.inputs.size())) : takes(r); };
  return {out};
}

}  // namespace belfry
