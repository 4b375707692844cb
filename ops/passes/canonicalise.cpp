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

/// Of a sum of gradients of slices that cut a value along one axis without a gap: their parts side by side.
std::optional<Value> joined_slices(Graph& out, const Node& n, const std::vector<Value>& in) {
  if (n.op->name != "add_n") return {};
  struct Part {
    Dim begin, size;
    Value dy;
  };
  std::vector<Part> parts;
  const Shape& wide = n.types[0].shape;
  std::size_t axis = wide.size();
  for (const Value& v : in) {
    const Node& s = out.node(v.id.node);
    if (s.op->name != "slice_gradient" || v.type() != n.types[0] || !s.attributes.integers("strides").empty()) return {};
    const Shape &begin = s.attributes.shape("begin"), &size = s.attributes.shape("size");
    for (std::size_t a = 0; a < wide.size(); ++a) {
      if (size[a] == wide[a]) continue;
      if (axis != wide.size() && axis != a) return {};
      axis = a;
    }
    if (axis == wide.size()) return {};
    parts.push_back({begin[axis], size[axis], {&out, s.inputs[0]}});
  }
  std::sort(parts.begin(), parts.end(), [](const Part& p, const Part& q) { return std::pair(p.begin.factor, p.size.factor) < std::pair(q.begin.factor, q.size.factor); });
  std::int64_t past = 0;
  std::vector<Value> dys;
  for (const Part& p : parts) {
    bool follows = p.begin.factor == past && (past == 0 || p.begin.symbol == wide[axis].symbol) && (p.size.factor == 0 || p.size.symbol == wide[axis].symbol);
    if (!follows) return {};
    past += p.size.factor;
    if (p.size.factor > 0) dys.push_back(p.dy);
  }
  if (dys.empty() || past != wide[axis].factor) return {};
  return out.add("concat", dys, {{"axis", static_cast<std::int64_t>(axis)}}, n.name);
}

}  // namespace

Graph canonicalise(const Graph& graph) {
  std::vector<ValueId> asked = roots(graph);
  return rewrite(graph, [&](Graph& out, const Node& n, NodeId id, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    if (auto joined = n.device ? std::nullopt : joined_slices(out, n, inputs)) return std::vector<Value>{*joined};
    // What is fetched, or placed by its user, keeps its name and node.
    if (n.device || std::find(asked.begin(), asked.end(), ValueId{id, 0}) != asked.end()) return {};
    auto value = simpler(n, inputs);
    if (!value || value->type() != n.types[0]) return {};
    return std::vector<Value>{*value};
  });
}

}  // namespace belfry
