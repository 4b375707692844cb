// The case tables of all rooms: an explicit list, one function per room.
#pragma once

#include "op_case.h"

namespace belfry::test {

using OpTables = std::vector<OpTable>;

OpTables add_n_cases();
OpTables argmax_cases();
OpTables avg_pool2d_cases();
OpTables batch_norm_cases();
OpTables binary_cases();
OpTables broadcast_like_cases();
OpTables cast_cases();
OpTables compare_cases();
OpTables concat_cases();
OpTables conv2d_cases();
OpTables cumsum_cases();
OpTables gather_cases();
OpTables identity_cases();
OpTables layer_norm_cases();
OpTables local_response_norm_cases();
OpTables matmul_cases();
OpTables max_pool2d_cases();
OpTables one_hot_cases();
OpTables optimizer_cases();
OpTables packed_attention_cases();
OpTables pad_cases();
OpTables random_cases();
OpTables reduce_cases();
OpTables reshape_cases();
OpTables resize_cases();
OpTables row_count_cases();
OpTables scaled_dot_product_attention_cases();
OpTables scatter_add_cases();
OpTables slice_cases();
OpTables softmax_cases();
OpTables softmax_cross_entropy_cases();
OpTables source_cases();
OpTables take_along_axis_cases();
OpTables top_k_cases();
OpTables tower_mean_cases();
OpTables transpose_cases();
OpTables unary_cases();

/// Of every room.
const OpTables& all_cases();
/// Of one op; none where it has no table.
std::vector<OpCase> cases_of(const std::string& op);

}  // namespace belfry::test
