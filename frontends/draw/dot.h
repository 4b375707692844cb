// A graph or plan in Graphviz's language, for tools that lay out graphs themselves.
#pragma once

#include <string>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// A box per node with name and op, an arrow per value that is read with its type.
std::string draw_dot(const Graph& graph);
/// The same of a plan, each tower node once, in a frame per list of devices.
std::string draw_dot(const PlacedGraph& plan);

}  // namespace belfry
