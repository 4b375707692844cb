// What a plan makes once, when its variables were set, and not in each step: values of variables and constants alone, where no step changes a variable.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Whether what a node makes is there before a step begins: variables, and what is made once.
inline bool is_there(const PlanNode& n) { return n.once || n.scope == Scope::state; }

/// Why a node cannot be made once, where those that it reads say rightly whether they are; empty: it can.
std::string why_each_step(const PlacedGraph& plan, const PlanNode& node);

/// Marks all nodes of a plan with its devices and copies that can be made once. None in a plan with gradients: whoever wants them changes the variables
/// before the next step.
void set_once(PlacedGraph& plan);

/// Per value whether it is made once and read in each step: its bytes are nobody else's.
std::vector<bool> kept_values(const PlacedGraph& plan);

}  // namespace belfry
