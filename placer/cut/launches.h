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
  Launches(const TowerGraph& graph, const Cluster& cluster, const CostTable& table);
  /// One launch of a node on a device of the cluster, by its number: of the first tower, or outside the towers; state has none.
  double seconds(int node, int device);

 private:
  PlacedGraph plan_;
  CostModel model_;
  std::vector<Variant> variants_;
};

}  // namespace belfry
