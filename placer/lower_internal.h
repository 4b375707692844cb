// What lowering puts into a plan: nodes and values like those that they bring elsewhere.
#pragma once

#include <string>
#include <string_view>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Reads `input`, with the cause's user and role.
PlanNode inserted_node(const PlanNode& cause, const std::string& name, const char* op, ValueIndex input, Scope scope, std::string_view reason);

/// A new value of the same type as another.
ValueIndex value_like(PlacedGraph& plan, ValueIndex v, const std::string& name, SplitState state);

}  // namespace belfry
