// The kernels of the CPU, room by room: one explicit list.
#pragma once

#include <belfry/executor/kernel.h>

namespace belfry {

/// All of them, per op best first. Sim devices run the same.
KernelTable cpu_kernels();

// Each room's own, in its *_cpu.cpp.
std::vector<Kernel> add_n_cpu();
std::vector<Kernel> argmax_cpu();
std::vector<Kernel> avg_pool2d_cpu();
std::vector<Kernel> batch_norm_cpu();
std::vector<Kernel> binary_cpu();
std::vector<Kernel> broadcast_like_cpu();
std::vector<Kernel> cast_cpu();
std::vector<Kernel> compare_cpu();
std::vector<Kernel> concat_cpu();
std::vector<Kernel> conv2d_cpu();
std::vector<Kernel> cumsum_cpu();
std::vector<Kernel> gather_cpu();
std::vector<Kernel> identity_cpu();
std::vector<Kernel> layer_norm_cpu();
std::vector<Kernel> local_response_norm_cpu();
std::vector<Kernel> matmul_cpu();
std::vector<Kernel> max_pool2d_cpu();
std::vector<Kernel> one_hot_cpu();
std::vector<Kernel> optimizer_cpu();
std::vector<Kernel> pad_cpu();
std::vector<Kernel> random_cpu();
std::vector<Kernel> reduce_cpu();
std::vector<Kernel> resize_cpu();
std::vector<Kernel> row_count_cpu();
std::vector<Kernel> scaled_dot_product_attention_cpu();
std::vector<Kernel> scatter_add_cpu();
std::vector<Kernel> slice_cpu();
std::vector<Kernel> softmax_cpu();
std::vector<Kernel> softmax_cross_entropy_cpu();
std::vector<Kernel> take_along_axis_cpu();
std::vector<Kernel> top_k_cpu();
std::vector<Kernel> transpose_cpu();
std::vector<Kernel> unary_cpu();

}  // namespace belfry
