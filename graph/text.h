// A graph as text for people: dumps of passes, failures of tests. The file format is the JSON frontend's.
#pragma once

#include <string>

#include <belfry/graph/graph.h>

namespace belfry {

/// One line per node, in order, then what is asked of the graph:
/// "name = op(inputs) {attributes that are not defaults} : type, type @device". The same graph gives the same text.
std::string to_text(const Graph& graph);
/// The line of one node.
std::string to_text(const Graph& graph, NodeId id);

}  // namespace belfry
