#include <fmt/format.h>

#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

Graph gate_updates(const Graph& graph, ValueId gate) {
  if (graph.type(gate) != TensorType{boolean, {}})
    throw UserError(fmt::format("the gate of the updates is a bool scalar, but '{}' is {}; use all_of or all_finite", graph.name_of(gate), to_string(graph.type(gate))));
  Graph out = graph;
  for (auto& [variable, v] : out.updates) {
    // Selection, not arithmetic: 0·NaN would not keep the old value.
    out.cursor = {"", {}, variable, Role::update, {}};
    Value old = out.value({variable, 0});
    v = out.add("where", {out.value(gate), out.value(v), old}, {}, out.free_name("gate/" + graph.node(variable).name)).id;
  }
  out.cursor = {};
  out.gate = {};
  return out;
}

}  // namespace belfry
