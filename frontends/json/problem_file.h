// The placement problem of a plan as JSON, for placers of one's own: their answer is a placement file.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/cost.h>

namespace belfry {

/// {"belfry": 1, "towers", "batch", "combine", "threads", "order", "nodes": [{"name", "of", "pin", "assigned", "seconds", "bytes", "scratch"}],
/// "edges": [["a", "b", bytes]], "devices": [{"device", "space", "memory"}], "links": […]}. Nodes are those that a rule can
/// place: a tower's once, under "tower_*/name", with the figures of the largest share; "seconds" and the bytes of its outputs
/// are of one launch, per device of the cluster. "pin" is the device that the graph asks for. An edge of a variable is read.
std::string write_problem(const PlacedGraph& plan, const CostTable& costs);
/// What a rule calls a node: of a tower's "tower_*/name".
std::string rule_name(const PlanNode& node);
/// The names of its nodes, in its order.
std::vector<std::string> problem_nodes(const PlacedGraph& plan);

}  // namespace belfry
