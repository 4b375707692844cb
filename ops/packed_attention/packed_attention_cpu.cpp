#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/packed_attention/apart_internal.h>

namespace belfry {

std::vector<Kernel> packed_attention_cpu() {
  std::vector<Kernel> out;
  for (Kernel& k : scaled_dot_product_attention_cpu()) out.push_back(packed(std::move(k)));
  return out;
}

}  // namespace belfry
