#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>
#include <belfry/graph/structural.h>

namespace belfry {

Graph drop_dead_code(const Graph& graph) {
  std::vector<ValueId> wanted = roots(graph);
  for (NodeId id : graph.inputs()) wanted.push_back({id, 0});
  return only(graph, wanted);
}

}  // namespace belfry
