#include <algorithm>
#include <numeric>

#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>
#include <belfry/graph/structural.h>

namespace belfry {

Graph order_nodes(const Graph& graph) {
  auto rank = [&](NodeId id) {
    const std::string& op = graph.node(id).op->name;
    return op == kInput ? 0 : op == kVariable ? 1 : 2;
  };
  std::vector<NodeId> nodes(static_cast<std::size_t>(graph.size()));
  std::iota(nodes.begin(), nodes.end(), 0);
  std::stable_sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) { return rank(a) < rank(b); });
  return rewrite(graph, [](auto&&...) { return std::nullopt; }, nodes);
}

}  // namespace belfry
