// What a step that failed says: the error, its node and device, and whose rule it was.
#pragma once

#include <belfry/executor/run.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// The first error of a run, with its node. What an op of a user's own threw is a UserError that names the op and its line.
[[noreturn]] void rethrow(const Outcome& outcome, const PlacedGraph& plan);

}  // namespace belfry
