// The graph that a Value belongs to, for functions that add several nodes.
#pragma once

#include <string_view>

#include <belfry/graph/graph.h>

namespace belfry {

/// UserError for an empty Value, naming the function that got it and the user's line.
Graph& graph_of(Value x, std::string_view function, SourceLine at);

}  // namespace belfry
