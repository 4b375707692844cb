#include <algorithm>
#include <cmath>

#include <belfry/graph/rewrite.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

/// Zeros above, below, left and right of pictures, or what is below all of them; empty: it is another kind of padding.
Integers around_pictures(const Node& pad) {
  const Integers &before = pad.attributes.integers("before"), &after = pad.attributes.integers("after");
  if (pad.attributes.text("mode") != "constant" || before.size() != 4 || before[0] + after[0] + before[3] + after[3] != 0) return {};
  return {before[1], after[1], before[2], after[2]};
}

/// Whether a window of this node may lie over `pads` in the place of the padded picture.
bool takes(const Graph& g, const Node& n, const Node& pad, const Integers& pads) {
  const bool convolves = n.op->name == "conv2d";
  if (!convolves && n.op->name != "max_pool2d") return false;
  if (n.attributes.text("padding") != "valid" || pads_of(n.attributes) || n.device != pad.device) return false;
  const double value = pad.attributes.real("value");
  const std::string& maker = g.node(pad.inputs[0].node).op->name;
  const bool lowest = std::isinf(value) && value < 0, not_above = value == 0 && (maker == "relu" || maker == "relu6");  // no window lies on padding alone, and is of nothing below zero
  if (convolves ? value != 0 : !lowest && !not_above) return false;
  const Integers &dilations = n.attributes.integers("dilations");
  for (std::size_t k = 0; k < 4; ++k) {
    const std::int64_t window = convolves ? g.type(n.inputs[1]).shape[k / 2].factor : n.attributes.integers("window")[k / 2];
    if (pads[k] >= spread(window, dilations[k / 2])) return false;
  }
  return true;
}

}  // namespace

Graph fold_pads(const Graph& graph) {
  const std::vector<ValueId> asked = roots(graph);
  std::vector<Integers> folded(static_cast<std::size_t>(graph.size()));  // by the node that pads
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op->name != "pad" || std::find(asked.begin(), asked.end(), ValueId{id, 0}) != asked.end()) continue;
    const Integers pads = around_pictures(n);
    const auto& readers = graph.readers(id);
    if (!pads.empty() && !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId r) { return takes(graph, graph.node(r), n, pads); })) folded[static_cast<std::size_t>(id)] = pads;
  }
  return rewrite(graph, [&](Graph& out, const Node& n, NodeId id, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    if (!folded[static_cast<std::size_t>(id)].empty()) return std::vector<Value>{inputs[0]};
    if (n.inputs.empty() || !n.inputs[0].valid()) return {};
    const Integers& pads = folded[static_cast<std::size_t>(n.inputs[0].node)];
    if (pads.empty()) return {};
    Attributes attributes = n.attributes;
    attributes.set("pads", pads);
    return out.add(*n.op, inputs, attributes, n.name).outputs();
  });
}

}  // namespace belfry
