// assign: rules give every node of a tower graph its devices.
#pragma once

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// First match wins, for each tower by itself. Feeds and results stay on the host. UserError for a node that no rule matches,
/// a device that the cluster lacks, and where one of the first `must_decide` rules decides nothing; "**" and rules of towers
/// without rows may.
void assign(PlacedGraph& plan, std::size_t must_decide = 0);

/// The user's requests as rules: exact names, those that follow a requested node (`of`) with it.
std::vector<PlacementRule> rules_of_requests(const Graph& graph);

}  // namespace belfry
