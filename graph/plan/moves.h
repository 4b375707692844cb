// What a plan carries between devices, by node and by link.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Bytes that one step of a node reads on a device for its own; equal devices where it reads at home.
struct Move {
  int from = -1, to = -1;  ///< devices
  std::int64_t bytes = 0;
};

/// Moves of a copy, split, aggregate or fetch over all towers and holders; empty for all other nodes, which read their own
/// memory space alone.
std::vector<Move> moves_of(const Instances& instances, const PlanNode& node);

/// Bytes of one step per pair of memory spaces (from, to); spaces that nothing joins have no entry.
std::map<std::pair<std::string, std::string>, std::int64_t> link_bytes(const PlacedGraph& plan);

}  // namespace belfry
