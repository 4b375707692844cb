// Nodes of a graph that become one kernel: what a pattern finder proposes and expand takes or leaves.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <belfry/graph/graph.h>
#include <belfry/graph/structural.h>

namespace belfry {

/// In order; the last one's output is the group's.
struct FusionGroup {
  std::string kind;
  std::vector<NodeId> members;
};

/// Whether its kernels give the bits of its members, whoever runs it.
inline bool is_tree(const Graph& graph, const FusionGroup& group) {
  return group.kind == kElementwise && std::all_of(group.members.begin(), group.members.end(), [&](NodeId id) { return graph.node(id).op->elementwise(); });
}

}  // namespace belfry
