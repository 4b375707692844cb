#include <belfry/ops/fusions.h>

#include <optional>
#include <set>

namespace belfry {

namespace {

/// The node of op `op` that makes a value as its only output.
std::optional<NodeId> maker(const Graph& g, ValueId v, std::string_view op) {
  if (!v.valid() || g.node(v.node).op->name != op || g.node(v.node).types.size() != 1) return {};
  return v.node;
}

std::optional<FusionGroup> conv2d_bias_relu(const Graph& g, NodeId last) {
  if (g.node(last).op->name != "relu") return {};
  auto sum = maker(g, g.node(last).inputs[0], "add");
  if (!sum) return {};
  for (std::size_t side : {0u, 1u}) {
    auto conv = maker(g, g.node(*sum).inputs[side], "conv2d");
    if (!conv) continue;
    const TensorType &y = g.node(*conv).types[0], &bias = g.type(g.node(*sum).inputs[1 - side]);
    if (g.node(*sum).types[0] == y && bias.shape == Shape{y.shape[3]}) return FusionGroup{kConv2dBiasRelu, {*conv, *sum, last}};
  }
  return {};
}

}  // namespace

std::vector<FusionGroup> find_groups(const Graph& g) {
  std::vector<FusionGroup> out;
  std::set<NodeId> taken;
  for (NodeId id = 0; id < g.size(); ++id) {
    auto group = conv2d_bias_relu(g, id);
    if (!group) continue;
    bool free = true;
    for (NodeId m : group->members) free = free && !taken.contains(m);
    if (!free) continue;
    taken.insert(group->members.begin(), group->members.end());
    out.push_back(std::move(*group));
  }
  return out;
}

}  // namespace belfry
