// What one instance of a plan's node reads, and where that was made.
#pragma once

#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry::picture {

struct Read {
  int node = -1, tower = -1, device = -1;  ///< the instance that is read
  std::int64_t bytes = 0;
};

/// Of tower nodes on their tower's device, of all others on a holder (tower -1). UserError for a plan without an instance to read.
std::vector<Read> reads_of(const Instances& instances, const PlanNode& node, int tower, int device);

/// Every instance of a node: tower and device.
std::vector<std::pair<int, int>> instances_of(const PlacedGraph& plan, const PlanNode& node);

}  // namespace belfry::picture
