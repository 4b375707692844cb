#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/packed_attention/apart_internal.h>

namespace belfry {

std::vector<Kernel> packed_attention_generated_cuda(const GpuCodeRef& code) {
  std::vector<Kernel> out;
  for (auto* of : {attention_gradient_tf32_cuda, attention_tf32_cuda, scaled_dot_product_attention_generated_cuda})
    for (Kernel& k : of(code)) out.push_back(packed(std::move(k)));
  return out;
}

std::vector<Kernel> packed_attention_cuda(const std::shared_ptr<CudaToolkit>& toolkit) { return packed(scaled_dot_product_attention_cuda(toolkit)); }

}  // namespace belfry
