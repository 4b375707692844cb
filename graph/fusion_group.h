// Nodes of a graph that become one kernel: what a pattern finder proposes and expand takes or leaves.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <belfry/graph/graph.h>

namespace belfry {

/// In order; the last one's output is the group's.
struct FusionGroup {
  std::string kind;
  std::vector<NodeId> members;
};

/// Whether all compute each element by itself: such a group's kernels give the bits of its members, whoever runs it.
inline bool by_element(const Graph& graph, const std::vector<NodeId>& members) {
  return std::all_of(members.begin(), members.end(), [&](NodeId id) { return graph.node(id).op->elementwise(); });
}

}  // namespace belfry
