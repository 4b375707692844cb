// The part of the verifier that asks the ops: types and split states of a plan's values are those that inference and split rules give.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Adds "type: …" and "split: …". Values and counts of inputs and outputs have been checked.
void check_types(const PlacedGraph& plan, std::vector<std::string>& found);

}  // namespace belfry
