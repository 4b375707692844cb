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

/// What trees are of: each element is computed by itself. A sum of any number of inputs has no scalar expression, since that names its inputs.
inline bool fits_trees(const OpDef& op) { return op.elementwise() || op.sum_of_inputs; }

/// Whether its kernels give the bits of its members, whoever runs it.
inline bool is_tree(const Graph& graph, const FusionGroup& group) {
  return group.kind == kElementwise && std::all_of(group.members.begin(), group.members.end(), [&](NodeId id) { return fits_trees(*graph.node(id).op); });
}

}  // namespace belfry
