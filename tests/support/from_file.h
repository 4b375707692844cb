// A plan and its file.
#pragma once

#include <belfry/graph/plan/placed_graph.h>

namespace belfry::test {

/// Read from its file a plan is the same, sound and of the same arithmetic, and so is one that is placed anew by that, with its groups and the CPU's kernels.
void expect_same_from_file(const PlacedGraph& plan);

}  // namespace belfry::test
