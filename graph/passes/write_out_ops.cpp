#include <belfry/graph/contexts.h>
#include <belfry/graph/halves.h>
#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>

namespace belfry {

Graph write_out_ops(const Graph& graph) {
  return rewrite(graph, [](Graph& out, const Node& n, NodeId, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    if (!n.op->write_out) return {};
    std::vector<Value> values = built_by(n.op->write_out, out, n, inputs);
    if (values.empty()) return {};
    return values;
  });
}

}  // namespace belfry
