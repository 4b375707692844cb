// Small steps on GPUs, of which one launch makes many: values of variables at the beginning of a step, updates of variables at its end.
#pragma once

#include <cstdint>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// A GPU's memory moves what an update of so many bytes reads and writes in a tenth of the time of a launch, and a gradient that waits for the
/// end of a step takes little room.
inline constexpr std::int64_t kSmallUpdate = 64 * 1024;
/// A cast of so many bytes takes a quarter of the time of a launch: who waits for all that are one would have waited longer for a launch of each.
inline constexpr std::int64_t kSmallValue = 1024 * 1024;

/// Update: makes new values of a variable and its slots. Value: computes or moves elements of what lies on its devices before the step: variables,
/// constants and values of these.
enum class Small : std::uint8_t { no, update, value };
/// Of nodes on GPUs alone, whole, of each step, with inputs and outputs of so many bytes at most. One in ranges does not count: others wait for each by itself.
std::vector<Small> small_steps(const PlacedGraph& plan);

/// Per node a number that those small steps have which can be one launch, as far as a plan tells, else -1: the same ops on the same types and devices, of
/// which nothing that stands between them reads an output. Of a plan with its order.
std::vector<int> joint_steps(const PlacedGraph& plan);

}  // namespace belfry
