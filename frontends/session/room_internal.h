// Whether programs fit beside each other: each of a session's has an arena of its own, and the variables are there once.
#pragma once

#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// UserError where a plan needs more than this host has, in whose memory all devices but GPUs live.
void check_room_here(const PlacedGraph& plan);

/// Whether a program of `next` fits beside those that are ready: on each device, on each host by what the cluster says of it, and on this one.
bool fits_beside(const std::vector<const PlacedGraph*>& ready, const PlacedGraph& next);

}  // namespace belfry
