// Feeds that land on GPUs: what steps there read of them is carried into a buffer of the device's own, while the step before runs.
#pragma once

#include <cstdint>
#include <vector>

#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Bytes [first, past) of a feed, at `at` of a landing buffer: the hull of what the device's steps read.
struct LandedFeed {
  ValueIndex value = -1;
  std::int64_t first = 0, past = 0, at = 0;
};

/// Of one device: the feeds by their values, and the bytes of each of its two landing buffers.
struct Landing {
  std::vector<LandedFeed> feeds;
  std::int64_t bytes = 0;
};

/// Whether what a node reads on a device is a feed that has landed there: on GPUs.
bool reads_landed(const PlacedGraph& plan, const PlanNode& node, int device);

/// Per device of the cluster.
std::vector<Landing> landings(const PlacedGraph& plan);

/// Per device of the cluster: of both buffers in which feeds land, and of the host those in which its driver finds them.
std::vector<std::int64_t> landing_bytes(const PlacedGraph& plan);

/// What lands in a step, per pair of devices: that of the next one.
std::vector<Move> landing_moves(const PlacedGraph& plan);

}  // namespace belfry
