#include <algorithm>
#include <set>

#include <belfry/graph/rewrite.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

/// Means that the losses read through sums and scalings only: `combine` is about these and no others.
std::set<NodeId> loss_means(const Graph& g) {
  std::set<NodeId> found;
  std::vector<ValueId> todo = g.losses;
  if (g.train) todo.insert(todo.end(), g.train->losses.begin(), g.train->losses.end());
  auto constant = [&](ValueId v) { return g.node(v.node).op->name == "constant"; };
  while (!todo.empty()) {
    ValueId v = todo.back();
    todo.pop_back();
    const Node& n = g.node(v.node);
    const std::string& op = n.op->name;
    if (op == "reduce_mean") found.insert(v.node);
    if (op == "add" || op == "sub" || op == "add_n" || op == "neg" || op == "identity") todo.insert(todo.end(), n.inputs.begin(), n.inputs.end());
    if (op == "mul" && constant(n.inputs[1])) todo.push_back(n.inputs[0]);
    if (op == "mul" && constant(n.inputs[0])) todo.push_back(n.inputs[1]);
    if (op == "div" && constant(n.inputs[1])) todo.push_back(n.inputs[0]);
  }
  return found;
}

}  // namespace

Graph lower_means(const Graph& graph) {
  std::set<NodeId> weighted = loss_means(graph);
  return rewrite(graph, [&](Graph& out, const Node& n, NodeId id, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    if (n.op->name != "reduce_mean") return {};
    Value x = inputs[0];
    Integers axes = n.attributes.integers("axes");
    std::vector<int> reduced = axes_from_front(axes, x.rank());
    if (reduced.empty())
      for (int a = 0; a < x.rank(); ++a) reduced.push_back(a);
    Shape weight(x.shape().size(), Dim(1)), count;
    int row_axis = -1;
    for (int a : reduced) {
      const Dim& d = x.shape()[static_cast<std::size_t>(a)];
      if (d.symbol == out.row_symbol && row_axis < 0) {
        row_axis = a;
        weight[static_cast<std::size_t>(a)] = d;
        if (d.factor != 1) count.push_back(d.factor);
      } else if (d != Dim(1)) count.push_back(d);  // a second row axis is counted whole
    }
    if (row_axis < 0 && symbolic_axes(count).empty()) return {};
    Attributes sum = {{"axes", axes}, {"keep", n.attributes.flag("keep")}};
    out.cursor.scope = n.name;
    if (row_axis >= 0 && weighted.contains(id)) {
      Value w = row_weight(out, weight, count, x.dtype());
      Value weighed = x * w;
      out.cursor.scope = {};
      return std::vector<Value>{out.add("reduce_sum", {weighed}, sum, n.name)};
    }
    if (row_axis >= 0) count.insert(count.begin(), Dim(1, out.row_symbol));
    Value total = out.add("reduce_sum", {x}, sum);
    Value rows = row_count(out, count, x.dtype());
    out.cursor.scope = {};
    return std::vector<Value>{out.add("div", {total, rows}, {}, n.name)};
  });
}

}  // namespace belfry
