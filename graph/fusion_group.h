// Nodes of a graph that become one kernel: what a pattern finder proposes and expand takes or leaves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <belfry/graph/graph.h>
#include <belfry/graph/structural.h>

namespace belfry {

/// In order. Members read nothing of each other but first outputs, which stay inside but for the last one's: `values_of` says what the group makes.
struct FusionGroup {
  std::string kind;
  std::vector<NodeId> members;
};

/// What trees are of: each element is computed by itself. A sum of any number of inputs has no scalar expression, since that names its inputs.
inline bool fits_trees(const OpDef& op) { return op.elementwise() || op.sum_of_inputs; }

/// All that the last member makes, then what those before make besides their first output.
inline std::vector<ValueId> values_of(const Graph& graph, const std::vector<NodeId>& members) {
  std::vector<ValueId> out;
  auto add = [&](NodeId id, std::size_t first) {
    for (std::size_t k = first; k < graph.node(id).types.size(); ++k) out.push_back({id, static_cast<std::int32_t>(k)});
  };
  add(members.back(), 0);
  for (std::size_t m = 0; m + 1 < members.size(); ++m) add(members[m], 1);
  return out;
}

/// Where output `k` of member `m` stands among these; -1: it stays inside.
inline std::ptrdiff_t place_of(const std::vector<const Node*>& members, std::size_t m, std::size_t k) {
  if (m + 1 == members.size()) return static_cast<std::ptrdiff_t>(k);
  if (k == 0) return -1;
  std::size_t at = members.back()->types.size();
  for (std::size_t before = 0; before < m; ++before) at += members[before]->types.size() - 1;
  return static_cast<std::ptrdiff_t>(at + k - 1);
}

/// The local type of member `m`'s first output, where that of the last member has the shape `whole`: rows lie along the same axes of both, as many of them. None where they do not.
inline std::optional<LocalType> inner_type(const std::vector<const Node*>& members, std::size_t m, const Extents& whole) {
  const Shape &own = members[m]->types[0].shape, &last = members.back()->types[0].shape;
  LocalType out{members[m]->types[0].dtype, whole};
  if (own == last) return out;
  if (own.size() != last.size() || own.size() != whole.size()) return {};
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].symbol != last[i].symbol || (own[i].symbolic() && last[i].factor == 0)) return {};
    out.shape[i] = own[i].symbolic() ? whole[i] / last[i].factor * own[i].factor : own[i].factor;
  }
  return out;
}

inline bool is_tree(const Graph& graph, const FusionGroup& group) {
  return group.kind == kElementwise && std::all_of(group.members.begin(), group.members.end(), [&](NodeId id) { return fits_trees(*graph.node(id).op); });
}

/// Whether its kernels give the bits of its members, whoever runs it: a tree, or a node of another kind with trees behind or before it.
inline bool has_bits_of_members(const Graph& graph, const FusionGroup& group) {
  if (group.kind != kWithElementwise) return is_tree(graph, group);
  return group.members.size() > 1 && std::count_if(group.members.begin(), group.members.end(), [&](NodeId id) { return !fits_trees(*graph.node(id).op); }) <= 1;
}

}  // namespace belfry
