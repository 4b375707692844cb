// Updates of small variables on GPUs: at the end of a step, one behind the other, where one launch makes many of them.
#pragma once

#include <cstdint>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// A GPU's memory moves what an update of so many bytes reads and writes in a tenth of the time of a launch, and a gradient that waits for the
/// end of a step takes little room.
inline constexpr std::int64_t kSmallUpdate = 64 * 1024;

/// Per node whether it makes new values of a variable and its slots, on GPUs alone, whole, of inputs and outputs of kSmallUpdate bytes at most.
/// One in ranges does not count: others wait for each by itself.
std::vector<bool> small_updates(const PlacedGraph& plan);

/// Whether small updates can be one launch, as far as a plan tells: the same ops on the same types.
bool alike(const PlacedGraph& plan, const PlanNode& a, const PlanNode& b);

}  // namespace belfry
