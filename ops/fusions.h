// Groups of nodes whose kernels round differently from the nodes one by one: found on the graph alone, the same for every device.
#pragma once

#include <belfry/graph/fusion_group.h>
#include <belfry/graph/graph.h>

namespace belfry {

/// relu(conv2d(x, filter) + bias) with a bias per channel. Inputs x, filter, bias.
inline constexpr const char* kConv2dBiasRelu = "conv2d_bias_relu";

/// In the order of their last members; no node is in two groups.
std::vector<FusionGroup> find_groups(const Graph& graph);

}  // namespace belfry
