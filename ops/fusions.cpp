#include <belfry/ops/fusions.h>

#include <optional>
#include <utility>

namespace belfry {

namespace {

/// The node of op `op` that makes a value as its only output.
std::optional<NodeId> maker(const Graph& g, ValueId v, std::string_view op) {
  if (!v.valid() || g.node(v.node).op->name != op || g.node(v.node).types.size() != 1) return {};
  return v.node;
}

/// What `op` makes plus a bias per element of its last axis, on either side: the two nodes.
std::optional<std::pair<NodeId, NodeId>> biased(const Graph& g, ValueId v, std::string_view op) {
  auto sum = maker(g, v, "add");
  if (!sum) return {};
  for (std::size_t side : {0u, 1u}) {
    auto made = maker(g, g.node(*sum).inputs[side], op);
    if (!made) continue;
    const TensorType &y = g.node(*made).types[0], &bias = g.type(g.node(*sum).inputs[1 - side]);
    if (g.node(*sum).types[0] == y && !y.shape.empty() && !y.shape.back().symbolic() && bias.shape == Shape{y.shape.back()}) return std::pair(*made, *sum);
  }
  return {};
}

}  // namespace

std::vector<FusionGroup> find_groups(const Graph& g) {
  constexpr std::pair<const char*, std::pair<const char*, const char*>> kActivated[] = {
      {kConv2dBiasRelu, {"conv2d", "relu"}}, {kMatmulBiasRelu, {"matmul", "relu"}}, {kMatmulBiasGeluTanh, {"matmul", "gelu_tanh"}}};
  std::vector<FusionGroup> out;
  for (NodeId id = 0; id < g.size(); ++id)
    for (const auto& [kind, ops] : kActivated)
      if (g.node(id).op->name == ops.second)
        if (auto sum = biased(g, g.node(id).inputs[0], ops.first)) out.push_back({kind, {sum->first, sum->second, id}});
  for (NodeId id = 0; id < g.size(); ++id)
    if (g.node(id).op->name == "add")
      if (auto sum = biased(g, {id, 0}, "matmul")) out.push_back({kMatmulBias, {sum->first, sum->second}});
  return out;
}

std::vector<FusionGroup> find_cpu_groups(const Graph& g) {
  std::vector<FusionGroup> out = find_groups(g);
  std::erase_if(out, [](const FusionGroup& group) { return group.kind != kConv2dBiasRelu; });
  return out;
}

}  // namespace belfry
