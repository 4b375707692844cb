#include <belfry/ops/cpu_kernels.h>

#include <belfry/ops/fusions.h>
#include <belfry/ops/half_kernels_internal.h>
#include <belfry/ops/member_kernels_internal.h>

namespace belfry {

KernelTable cpu_kernels() {
  std::vector<Kernel> all;
  for (auto* room : {add_n_cpu, argmax_cpu, avg_pool2d_cpu, batch_norm_cpu, binary_cpu, broadcast_like_cpu, cast_cpu, compare_cpu, concat_cpu, conv2d_cpu, cumsum_cpu, gather_cpu,
                     identity_cpu, layer_norm_cpu, local_response_norm_cpu, matmul_cpu, max_pool2d_cpu, one_hot_cpu, optimizer_cpu, pad_cpu, random_cpu, reduce_cpu, resize_cpu,
                     row_count_cpu, scaled_dot_product_attention_cpu, scatter_add_cpu, slice_cpu, softmax_cpu, softmax_cross_entropy_cpu, take_along_axis_cpu, top_k_cpu, transpose_cpu,
                     unary_cpu})
    for (Kernel& k : room()) all.push_back(std::move(k));
  KernelTable table;
  add_with_halves(table, all, cast_cpu()[0]);
  // What follows a product here is exact, or far less work: a kernel of its own would save a pass over what is in the cache.
  auto members = std::make_shared<const KernelTable>(table);
  table.add(in_turn(kMatmulBiasGeluTanh, {"matmul", "add", "gelu_tanh"}, members, true));
  table.add(in_turn(kConv2dBias, {"conv2d", "add"}, members, true));
  table.add(in_turn(kConv2dBiasAdd, {"conv2d", "add", "add"}, members, true));
  table.add(in_turn(kMatmulBias, {"matmul", "add"}, members, true));
  table.add(in_turn(kMatmulAdd, {}, members, true));
  table.add(in_turn(kElementwise, {}, members, true));
  table.add(in_turn(kWithElementwise, {}, members, true));
  return table;
}

}  // namespace belfry
