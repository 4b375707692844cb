// The names by which values of a graph are fetched and reported.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/graph.h>

namespace belfry {

/// UserError with the nearest names, or with losses, metrics and outputs, where the graph has none of this name. "gradient/W" is the gradient of the variable W.
ValueId value_to_fetch(const Graph& graph, std::string name);

/// What losses are fetched and reported by: their names, or "loss" where the builder calls the only one so and no metric is.
std::vector<std::string> loss_names(const Graph& graph);

}  // namespace belfry
