// Nodes of a graph that become one kernel: what a pattern finder proposes and expand takes or leaves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <belfry/graph/graph.h>
#include <belfry/graph/structural.h>

namespace belfry {

/// In order. Members read nothing of each other but first outputs, which stay inside but for the last one's and those of `kept`: `values_of` says what the group makes.
struct FusionGroup {
  std::string kind;
  std::vector<NodeId> members;
  std::vector<NodeId> kept = {};  ///< members before the last
};

/// What trees are of: each element is computed by itself. A sum of any number of inputs has no scalar expression, since that names its inputs.
inline bool fits_trees(const OpDef& op) { return op.elementwise() || op.sum_of_inputs; }

/// A member that adds what another makes, in the order of the op's own kernels. No member reads it.
inline bool is_sum_aside(const OpDef& op) { return op.name == kReduceSum; }

inline bool keeps(const FusionGroup& group, NodeId id) { return std::find(group.kept.begin(), group.kept.end(), id) != group.kept.end(); }

/// All that the last member makes, then of those before the first output where it is kept, and what they make besides.
inline std::vector<ValueId> values_of(const Graph& graph, const FusionGroup& group) {
  std::vector<ValueId> out;
  auto add = [&](NodeId id, std::size_t first) {
    for (std::size_t k = first; k < graph.node(id).types.size(); ++k) out.push_back({id, static_cast<std::int32_t>(k)});
  };
  add(group.members.back(), 0);
  for (std::size_t m = 0; m + 1 < group.members.size(); ++m) add(group.members[m], keeps(group, group.members[m]) ? 0 : 1);
  return out;
}

inline bool is_tree(const Graph& graph, const FusionGroup& group) {
  return group.kind == kElementwise && std::all_of(group.members.begin(), group.members.end(), [&](NodeId id) { return fits_trees(*graph.node(id).op); });
}

/// Whether its kernels give the bits of its members, whoever runs it: a tree, or one behind or before a node of another kind, with sums of what they make.
inline bool has_bits_of_members(const Graph& graph, const FusionGroup& group) {
  if (group.kind != kWithElementwise) return is_tree(graph, group);
  auto other = [&](NodeId id) { return !fits_trees(*graph.node(id).op) && !is_sum_aside(*graph.node(id).op); };
  return group.members.size() > 1 && std::count_if(group.members.begin(), group.members.end(), other) <= 1;
}

}  // namespace belfry
