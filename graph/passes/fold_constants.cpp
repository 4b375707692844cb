#include <belfry/graph/evaluate.h>
#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

constexpr std::int64_t kLimit = 64;  // a folded tensor stands in the text of the graph

bool can_fold(const Node& n, const std::vector<Value>& inputs) {
  if (n.op->random || n.op->source || inputs.empty() || n.types.size() != 1 || n.device) return false;
  for (const Value& v : inputs)
    if (!v || v.graph->node(v.id.node).op->name != kConstant) return false;
  return symbolic_axes(n.types[0].shape).empty() && elements(extents_of(n.types[0].shape, 1)) <= kLimit;
}

}  // namespace

Graph fold_constants(const Graph& graph) {
  return rewrite(graph, [](Graph& out, const Node& n, NodeId, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    if (!can_fold(n, inputs)) return {};
    std::vector<const HostTensor*> tensors;
    for (const Value& v : inputs) tensors.push_back(&out.node(v.id.node).attributes.tensor("value"));
    std::vector<HostTensor> folded;
    try {
      folded = evaluate(*n.op, n.attributes, tensors, n.types, {local_type(n.types[0], 1)}, {});
    } catch (const std::exception& e) {  // a reference of a user's own may throw anything
      std::string text = e.what(), op = "[" + n.op->name + "] ";
      throw UserError((text.starts_with(op) ? "" : op) + text + "; node '" + n.name + "', whose inputs are constants" + n.source.aside());
    }
    return std::vector<Value>{out.add(kConstant, {}, {{"value", std::move(folded[0])}}, n.name)};
  });
}

}  // namespace belfry
