#include <belfry/ops/all_ops.h>

#include <belfry/ops/build.h>

namespace belfry {

OpSet standard_ops() {
  OpSet ops;
  auto family = [&](std::vector<OpDef> defs) {
    for (OpDef& d : defs) ops.add(std::move(d));
  };
  ops.add(input_def());
  ops.add(variable_def());
  ops.add(constant_def());
  ops.add(row_count_def());
  ops.add(row_weight_def());
  family(random_defs());
  ops.add(identity_def());
  ops.add(stop_gradient_def());
  ops.add(cast_def());
  ops.add(reshape_def());
  ops.add(transpose_def());
  ops.add(broadcast_like_def());
  ops.add(broadcast_to_def());
  ops.add(concat_def());
  family(slice_defs());
  family(binary_defs());
  family(unary_defs());
  family(compare_defs());
  ops.add(where_def());
  ops.add(add_n_def());
  family(reduce_defs());
  ops.add(reduce_mean_def());
  ops.add(matmul_def());
  family(conv2d_defs());
  family(max_pool2d_defs());
  family(avg_pool2d_defs());
  family(local_response_norm_defs());
  family(pad_defs());
  family(resize_defs());
  family(softmax_defs());
  family(softmax_cross_entropy_defs());
  family(argmax_defs());
  family(top_k_defs());
  ops.add(one_hot_def());
  family(gather_defs());
  family(take_along_axis_defs());
  ops.add(scatter_add_def());
  ops.add(cumsum_def());
  family(batch_norm_defs());
  family(layer_norm_defs());
  family(packed_attention_defs());
  family(scaled_dot_product_attention_defs());
  ops.add(tower_mean_def());
  family(optimizer_defs());
  return ops;
}

}  // namespace belfry
