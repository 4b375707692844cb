// What a plan carries between devices, by node and by link.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/readers.h>
#include <belfry/graph/structural.h>

namespace belfry {

/// Bytes that one step of a node reads on a device for its own; equal devices where it reads at home.
struct Move {
  int from = -1, to = -1;  ///< devices
  std::int64_t bytes = 0;
};

/// Whether a node that joins on a device takes the part of a tower there: a pre_aggregate those of its owners, others all.
inline bool takes_part(const PlacedGraph& plan, const PlanNode& n, int tower, int device) {
  return !is_op(n, kPreAggregate) || plan.vectors[static_cast<std::size_t>(n.owners)][static_cast<std::size_t>(tower)] == device;
}

/// The towers whose parts a node takes: of a pre_aggregate per device, else all of them in one list.
NumberLists towers_taken(const PlacedGraph& plan, const PlanNode& n);

/// Per tower the device that adds its part with those of its link group: the first of `holders` in the group of its owner, else
/// the first owner there.
std::vector<int> group_leaders(const Cluster& cluster, const std::vector<int>& owners, const std::vector<int>& holders);

/// Per tower the device that adds its part where GPUs do not read each other's memory: the CPU of its owner's host.
std::vector<int> host_adders(const Cluster& cluster, const std::vector<int>& owners);

/// Moves of a copy, split, join, or sum of several devices before it, over all towers and holders; empty for all other nodes, which read their own
/// memory space alone.
std::vector<Move> moves_of(const Instances& instances, const PlanNode& node);

/// A sum, maximum or mean of towers: element by element, so that its result may lie over one of the parts that it adds.
bool adds_parts(const PlanNode& node);

/// Per holder of a sum over towers, or over those of some devices, the bytes of parts that it must carry into its scratch before it adds them; empty for other nodes.
std::vector<std::int64_t> landed_bytes(const Instances& instances, const PlanNode& node);

struct LinkLoad {
  std::string from, to;    ///< memory spaces
  std::int64_t bytes = 0;  ///< of one step
};

/// What goes between memory spaces in one step, the most first; links that carry nothing are left out.
std::vector<LinkLoad> link_bytes(const PlacedGraph& plan);

}  // namespace belfry
