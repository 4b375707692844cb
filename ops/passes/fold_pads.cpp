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
bool takes(const Graph& g, NodeId reader, NodeId padder, const Integers& pads) {
  const Node &n = g.node(reader), &pad = g.node(padder);
  const bool convolves = n.op->name == "conv2d";
  if ((!convolves && n.op->name != "max_pool2d") || n.inputs[0].node != padder || std::count_if(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return v.node == padder; }) != 1) return false;
  if (n.attributes.text("padding") != "valid" || pads_of(n.attributes) || n.device != pad.device) return false;
  const double value = pad.attributes.real("value");
  const std::string& maker = g.node(pad.inputs[0].node).op->name;
  const bool lowest = std::isinf(value) && value < 0, not_above = value == 0 && (maker == "relu" || maker == "relu6");  // no window lies on padding alone, and is of nothing below zero
  if (convolves ? value != 0 : !lowest && !not_above) return false;
  const Integers &dilations = n.attributes.integers("dilations");
  for (std::size_t k = 0; k < 4; ++k) {
    const std::int64_t window = convolves ? g.type(n.inputs[1]).shape[k / 2].factor : n.attributes.integers("window")[k / 2];
    if (pads[k] >= spread(window, dilations[k / 2]) || (!convolves && window > 1 && dilations[k / 2] > g.type(pad.inputs[0]).shape[k / 2 + 1].factor)) return false;
  }
  return true;
}

}  // namespace

Graph fold_pads(const Graph& graph) {
  const std::vector<ValueId> asked = roots(graph);
  auto is_asked = [&](ValueId v) { return std::find(asked.begin(), asked.end(), v) != asked.end(); };
  // Which of several zeros is the first of a window is another where the padding is none of them.
  auto says_where = [&](NodeId id) {
    const ValueId index{id, 1};
    const auto& readers = graph.readers(id);
    return graph.node(id).op->name == "max_pool2d" && (is_asked(index) || std::any_of(readers.begin(), readers.end(), [&](NodeId r) { const auto& in = graph.node(r).inputs; return std::find(in.begin(), in.end(), index) != in.end(); }));
  };
  std::vector<Integers> folded(static_cast<std::size_t>(graph.size()));  // by the node that pads
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op->name != "pad" || is_asked({id, 0})) continue;
    const Integers pads = around_pictures(n);
    const auto& readers = graph.readers(id);
    if (!pads.empty() && !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId r) { return takes(graph, r, id, pads) && !says_where(r); })) folded[static_cast<std::size_t>(id)] = pads;
  }
  return rewrite(graph, [&](Graph& out, const Node& n, NodeId, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    if (n.inputs.empty() || !n.inputs[0].valid()) return {};
    const Integers& pads = folded[static_cast<std::size_t>(n.inputs[0].node)];
    if (pads.empty()) return {};
    Attributes attributes = n.attributes;
    attributes.set("pads", pads);
    // The padded picture stays until nothing is found to read it: no name stands for another value.
    std::vector<Value> unpadded = inputs;
    unpadded[0] = out.value(out.node(inputs[0].id.node).inputs[0]);
    return out.add(*n.op, unpadded, attributes, n.name).outputs();
  });
}

}  // namespace belfry
