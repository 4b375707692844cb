// Groups of nodes that become one kernel: found on the graph alone, the same for every device. Those with a product round differently from the nodes one by one.
#pragma once

#include <belfry/graph/fusion_group.h>
#include <belfry/graph/graph.h>

namespace belfry {

/// relu(conv2d(x, filter) + bias) with a bias per channel. Inputs x, filter, bias.
inline constexpr const char* kConv2dBiasRelu = "conv2d_bias_relu";

/// conv2d(x, filter) + bias, of one tap or of few channels on tensor cores (no_few_channels), whose sum no elementwise node reads. Inputs x, filter, bias.
inline constexpr const char* kConv2dBias = "conv2d_bias";

/// conv2d(x, filter) + bias, of one tap, with another value of its type: a residual. Where a tree would hold the sum it adds all in its pass. Inputs x, filter, bias, the other.
inline constexpr const char* kConv2dBiasAdd = "conv2d_bias_add";

/// matmul(a, b) + bias with a bias per element of the last axis, and what may follow. Inputs a, b, bias.
inline constexpr const char* kMatmulBias = "matmul_bias";
inline constexpr const char* kMatmulBiasGeluTanh = "matmul_bias_gelu_tanh";

/// Sums with rows, of up to eight values of their type: products, each with a bias as above or without, and at most one other: x + (a·b + bias), a·b + c·d + x. Inputs: of
/// each product a, b and its bias, then the other value. Of halves the sum is rounded behind each product.
inline constexpr const char* kMatmulAdd = "matmul_add";

/// Those that a CPU has one kernel for: kConv2dBiasRelu.
std::vector<FusionGroup> find_cpu_groups(const Graph& graph);
/// Those that a GPU has one kernel for: of products, and trees (kElementwise): nodes that compute each element by itself, sums of any number of inputs too where they have rows, of one shape and role, each read by others of them alone but for the last; inputs: what they
/// read from outside, in their order. A relu is always a tree's: libraries make 0 of a NaN. Of trees of exact nodes some are one kernel with what they alone read, or what reads them (kWithElementwise): with a batch
/// norm's y, its gradient's dy, the dx of a layer or group norm, where all lies as that; and with the y of a convolution of one filter per channel, its x, or both, where besides lies one value per channel, or one. With what a tree makes, or a layer norm's
/// gradient with the tree behind it or without, its sum over all axes but the last is one kernel, and of that gradient the same as halves: a wide bias's gradient. So it is with a batch norm's gradient, with the tree before it or
/// without, and a bias of any width. Where others read what is summed, or that dy, it is kept.
/// Best first: of groups that share a node, expand takes the first that fits there.
std::vector<FusionGroup> find_gpu_groups(const Graph& graph);

}  // namespace belfry
