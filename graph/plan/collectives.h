// Which joins a library's collectives make, where the placement leaves their order to the fastest.
#pragma once

#include <string>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

inline constexpr const char* kNccl = "nccl";

/// Whether a step's kernel is a library's collective, whose ranks wait for each other.
inline bool is_collective(const Variant* kernel) { return kernel && kernel->kernel == kNccl; }

/// The kernel of a node that moves values: its op, or kNccl for sums over towers and gathers of ranges on at least two whole GPUs,
/// each holding parts (in ranges: one) and the result, if the placement asks for Collectives::fastest.
std::string kernel_of_moves(const PlacedGraph& plan, const PlanNode& node);

}  // namespace belfry
