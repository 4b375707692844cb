#include <belfry/ops/cpu_kernels.h>

namespace belfry {

KernelTable cpu_kernels() {
  KernelTable table;
  for (auto* room : {add_n_cpu, argmax_cpu, batch_norm_cpu, binary_cpu, broadcast_like_cpu, cast_cpu, compare_cpu, conv2d_cpu, gather_cpu, identity_cpu, layer_norm_cpu, matmul_cpu,
                     max_pool2d_cpu, one_hot_cpu, optimizer_cpu, random_cpu, reduce_cpu, row_count_cpu, scaled_dot_product_attention_cpu, softmax_cpu,
                     softmax_cross_entropy_cpu, transpose_cpu, unary_cpu})
    for (Kernel& k : room()) table.add(std::move(k));
  return table;
}

}  // namespace belfry
