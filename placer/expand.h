// expand: a graph for the whole batch becomes the tower graph of T towers. All arithmetic is fixed here.
#pragma once

#include <belfry/graph/fusion_group.h>
#include <belfry/graph/plan/tower_graph.h>

namespace belfry {

struct ExpandOptions {
  int towers = 1;
  std::int64_t batch = 1;
  Combine combine = Combine::global_mean;
  int threads = 1;
  bool updates = true;                                          ///< false: drop them; the arithmetic stays that of the graph with them
  std::vector<std::pair<std::string, ValueId>> fetches = {};
  std::vector<FusionGroup> groups = {};                         ///< from a pattern finder, those that states do not cut are taken
  std::vector<NodeId> visiting_order = {};                      ///< for tests: any topological order gives the same states
};

/// UserError for B < 1, for towers, threads and values over a plan's limits, for symbols other than the rows' that are not bound, for a per-tower value that meets a partial one.
TowerGraph expand(std::shared_ptr<const Graph> graph, const ExpandOptions& options);

}  // namespace belfry
