#include <algorithm>
#include <optional>
#include <vector>

#include <belfry/graph/rewrite.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

/// The gradient of a relu or relu6 of a batch norm's y, which the norm's gradient alone reads and may make itself; -1: there is none.
NodeId slope_before(const Graph& g, NodeId gradient, const std::vector<ValueId>& asked) {
  const NodeId norm = norm_of(g, gradient);
  if (norm < 0) return -1;
  const Node& n = g.node(gradient);
  if (n.attributes.flag("sync") || n.attributes.text(kActivation) != "none" || n.inputs[1] != g.node(norm).inputs[1] || n.attributes.real("epsilon") != g.node(norm).attributes.real("epsilon")) return -1;
  const NodeId slope = n.inputs.back().node;
  const Node& s = g.node(slope);
  if ((s.op->name != "relu_gradient" && s.op->name != "relu6_gradient") || s.device != n.device || s.role != n.role || g.readers(slope) != std::vector<NodeId>{gradient}) return -1;
  if (std::any_of(asked.begin(), asked.end(), [&](ValueId v) { return v.node == slope; })) return -1;
  const Node& bent = g.node(s.inputs[1].node);
  if (bent.device != g.node(norm).device) return -1;  // gradients go with what they are of
  return bent.op->name + "_gradient" == s.op->name && bent.inputs[0] == ValueId{norm, 0} ? slope : -1;
}

}  // namespace

Graph fold_slopes(const Graph& graph) {
  const std::vector<ValueId> asked = roots(graph);
  return drop_dead_code(rewrite(graph, [&](Graph& out, const Node& n, NodeId id, std::vector<Value> inputs) -> std::optional<std::vector<Value>> {
    const NodeId slope = slope_before(graph, id, asked);
    if (slope < 0) return {};
    const Node &s = out.node(inputs.back().id.node), &norm = out.node(inputs[3].id.node);
    inputs[2] = norm.inputs[2].valid() ? out.value(norm.inputs[2]) : Value{};
    inputs.back() = out.value(s.inputs[0]);
    Attributes attributes = n.attributes;
    attributes.set(kActivation, graph.node(graph.node(slope).inputs[1].node).op->name);
    return out.add(*n.op, inputs, attributes, n.name).outputs();
  }));
}

}  // namespace belfry
