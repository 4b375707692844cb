// --optimizer and --learning-rate: what a graph is trained by, in the place of what it says itself.
#pragma once

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/graph/graph.h>

namespace belfry {

void add_optimizer_options(CLI::App& verb, PlacementArguments& arguments);
/// The graph with what the arguments say of its training, if they do. UserError for one that says no optimizer itself: it is served, or has its updates written out.
Graph with_optimizer(Graph graph, const PlacementArguments& arguments);

/// WrongUse where the options are given beside --inference.
void refuse_idle_optimizer(const PlacementArguments& arguments);

}  // namespace belfry
