#include <belfry/placer/cut/launches.h>

#include <string_view>

namespace belfry {

namespace {

PlacedGraph unplaced(const TowerGraph& graph, const Cluster& cluster) {
  PlacedGraph out;
  static_cast<TowerGraph&>(out) = graph;
  out.cluster = cluster;
  return out;
}

}  // namespace

std::map<std::string, std::string> kernels_by_op(const CostTable& table) {
  std::map<std::string, std::string> out;
  for (const auto& [key, measured] : table.kernels) {
    const std::string_view text = key;
    const std::size_t op = text.find(' ') + 1;
    out.try_emplace(std::string(text.substr(op, text.find_first_of(" {", op) - op)), text.substr(0, op - 1));
  }
  return out;
}

Launches::Launches(const TowerGraph& graph, const Cluster& cluster, const CostTable& table) : plan_(unplaced(graph, cluster)), model_(plan_, table), variants_(graph.nodes.size()) {
  const std::map<std::string, std::string> kernel = kernels_by_op(table);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (auto known = kernel.find(graph.nodes[i].op); known != kernel.end()) variants_[i].kernel = known->second;
}

double Launches::seconds(int node, int device) {
  const PlanNode& n = plan_.nodes[static_cast<std::size_t>(node)];
  if (n.scope == Scope::state) return 0;
  return model_(node, variants_[static_cast<std::size_t>(node)], n.scope == Scope::tower ? 0 : -1, device, is_join(n) ? plan_.present() : 0).seconds;
}

}  // namespace belfry
