// The split states of a graph over towers: what every node gives, how it reads, and what its readers see.
#pragma once

#include <cstdint>
#include <vector>

#include <belfry/graph/graph.h>

namespace belfry {

/// Per node: as readers see its outputs, as it reads its inputs, as it gives its outputs. Empty for nodes that nobody needs.
struct NodeStates {
  std::vector<std::vector<SplitState>> seen, reads, gives;
  SplitState as_seen(ValueId v) const { return seen[static_cast<std::size_t>(v.node)][static_cast<std::size_t>(v.output)]; }
};

/// States forward and then all demands, until nothing changes: only the `core` (what updates need) moves a value for all. `order` is any
/// topological one; nodes that are neither core nor `live` have no states. UserError for a per-tower value that meets a partial one, or
/// a reader of whole values.
NodeStates settled_states(const Graph& graph, std::int64_t batch, const std::vector<NodeId>& order, const std::vector<bool>& core, const std::vector<bool>& live);

}  // namespace belfry
