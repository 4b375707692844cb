#include <belfry/graph/contexts.h>
#include <belfry/graph/halves.h>
#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>

namespace belfry {

Graph write_out_ops(const Graph& graph) {
  return rewrite(graph, [](Graph& out, const Node& n, NodeId, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    if (!n.op->write_out) return {};
    out.cursor.scope = n.name;
    GradientContext context(out, n.attributes, widened(*n.op, inputs));
    std::vector<Value> values = n.op->write_out(context);
    for (std::size_t k = 0; k < values.size(); ++k)
      if (values[k]) values[k] = in_dtype(values[k], n.types[k].dtype);
    out.cursor.scope = {};
    if (values.empty()) return {};
    return values;
  });
}

}  // namespace belfry
