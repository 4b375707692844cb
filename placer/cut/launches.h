// Costs of launches before kernels are chosen: what strategies go by.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <belfry/graph/plan/cost.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// The kernel that the table knows for each op.
std::map<std::string, std::string> kernels_by_op(const CostTable& table);

/// Seconds as forecasts take them, of the kernel that the table knows for the op.
class Launches {
 public:
  /// The table must live as long.
  Launches(TowerGraph graph, const Cluster& cluster, const CostTable& table);
  /// One launch of a node on a device of the cluster, by its number: of the first tower, or outside the towers; state has none.
  double seconds(int node, int device);

 private:
  PlacedGraph plan_;
  CostModel model_;
  std::vector<Variant> variants_;
};

/// The same, for who asks for one node after the other: only one is copied at a time.
class LaunchesInTurn {
 public:
  /// All must live as long.
  LaunchesInTurn(const TowerGraph& graph, const Cluster& cluster, const CostTable& table);
  double seconds(int node, int device);

 private:
  const TowerGraph& graph_;
  PlacedGraph plan_;                                // of the values and this one node
  int node_ = -1;
  CostModel model_;
  std::map<std::string, std::string> kernels_;
  Variant variant_;
};

}  // namespace belfry
