#include <belfry/placer/cut/launches.h>

#include <string_view>
#include <utility>

namespace belfry {

namespace {

PlacedGraph unplaced(TowerGraph graph, const Cluster& cluster) {
  PlacedGraph out;
  static_cast<TowerGraph&>(out) = std::move(graph);
  out.cluster = cluster;
  return out;
}

/// Of the values and one node, which is yet to come.
PlacedGraph unplaced_values(const TowerGraph& graph, const Cluster& cluster) {
  PlacedGraph out;
  out.graph = graph.graph;
  out.towers = graph.towers;
  out.batch = graph.batch;
  out.combine = graph.combine;
  out.threads = graph.threads;
  out.nodes.resize(1);
  out.values = graph.values;
  out.cluster = cluster;
  return out;
}

double seconds_of(const PlacedGraph& plan, CostModel& model, int node, const Variant& variant, int device) {
  const PlanNode& n = plan.nodes[static_cast<std::size_t>(node)];
  if (n.scope == Scope::state) return 0;
  return model(node, variant, n.scope == Scope::tower ? 0 : -1, device, is_join(n) ? plan.present() : 0).seconds;
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

Launches::Launches(TowerGraph graph, const Cluster& cluster, const CostTable& table) : plan_(unplaced(std::move(graph), cluster)), model_(plan_, table), variants_(plan_.nodes.size()) {
  const std::map<std::string, std::string> kernel = kernels_by_op(table);
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i)
    if (auto known = kernel.find(plan_.nodes[i].op); known != kernel.end()) variants_[i].kernel = known->second;
}

double Launches::seconds(int node, int device) { return seconds_of(plan_, model_, node, variants_[static_cast<std::size_t>(node)], device); }

LaunchesInTurn::LaunchesInTurn(const TowerGraph& graph, const Cluster& cluster, const CostTable& table)
    : graph_(graph), plan_(unplaced_values(graph, cluster)), model_(plan_, table), kernels_(kernels_by_op(table)) {}

double LaunchesInTurn::seconds(int node, int device) {
  if (std::exchange(node_, node) != node) {
    plan_.nodes[0] = graph_.nodes[static_cast<std::size_t>(node)];
    const auto known = kernels_.find(plan_.nodes[0].op);
    variant_.kernel = known == kernels_.end() ? "" : known->second;
  }
  return seconds_of(plan_, model_, 0, variant_, device);
}

}  // namespace belfry
