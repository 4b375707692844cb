#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>
#include <belfry/graph/structural.h>

namespace belfry {

Graph drop_dead_code(const Graph& graph) {
  std::vector<ValueId> wanted = roots(graph);
  for (NodeId id : graph.inputs()) wanted.push_back({id, 0});
  std::vector<bool> live = ancestors(graph, wanted);
  auto copy = [](Graph&, const Node&, NodeId, const std::vector<Value>&) { return std::nullopt; };
  return rewrite(graph, copy, [&](NodeId id) { return live[static_cast<std::size_t>(id)]; });
}

}  // namespace belfry
