#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/packed_attention/apart_internal.h>

namespace belfry {

std::vector<Kernel> packed_attention_cpu() { return packed(scaled_dot_product_attention_cpu()); }

}  // namespace belfry
