#include <algorithm>

#include <belfry/graph/rewrite.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

/// A constant whose elements are all `value`.
bool is_constant(const Value& v, double value) {
  const Node& n = v.graph->node(v.id.node);
  if (n.op->name == "broadcast_like") return is_constant({v.graph, n.inputs[0]}, value);
  if (n.op->name != "constant") return false;
  const HostTensor& t = n.attributes.tensor("value");
  return visit_dtype(t.dtype(), [&]<class T>() {
    auto x = t.data<T>();
    return !x.empty() && std::all_of(x.begin(), x.end(), [&](T e) { return e == static_cast<T>(value); });
  });
}

/// x in the place of a node, if it has its type.
std::optional<Value> simpler(const Node& n, const std::vector<Value>& in) {
  const std::string& op = n.op->name;
  if (op == "add" && is_constant(in[1], 0)) return in[0];
  if (op == "add" && is_constant(in[0], 0)) return in[1];
  if (op == "sub" && is_constant(in[1], 0)) return in[0];
  if (op == "mul" && is_constant(in[1], 1)) return in[0];
  if (op == "mul" && is_constant(in[0], 1)) return in[1];
  if (op == "div" && is_constant(in[1], 1)) return in[0];
  if (op == "reshape" || op == "cast" || op == "broadcast_like") return in[0];
  if (op == "add_n" && in.size() == 1) return in[0];
  return {};
}

}  // namespace

Graph canonicalise(const Graph& graph) {
  std::vector<ValueId> asked = roots(graph);
  return rewrite(graph, [&](Graph&, const Node& n, NodeId id, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    // What is fetched, or placed by its user, keeps its name and node.
    if (n.device || std::find(asked.begin(), asked.end(), ValueId{id, 0}) != asked.end()) return {};
    auto value = simpler(n, inputs);
    if (!value || value->type() != n.types[0]) return {};
    return std::vector<Value>{*value};
  });
}

}  // namespace belfry
