// Words in pictures: names cut to a width, facts of a node, the layer that a node belongs to.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <belfry/graph/graph.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry::picture {

/// The facts of a node on hover, a line each.
std::string note_of(const PlacedGraph& plan, const PlanNode& node);
std::string note_of(const Graph& graph, const Node& node);
/// The kernels of a plan's node, by name.
std::string kernels_of(const PlanNode& node, std::string_view between);
/// Names of the streams on which tower nodes run, per vector of devices.
std::vector<std::string> streams_by_vector(const PlacedGraph& plan, std::string_view between);
/// Per node the one whose name says its layer: of gradients, slots and updates what they follow, of nodes without a name of
/// their own ("relu_3") what they read.
std::vector<std::string> layers_of(const Graph& graph);
/// A name in at most so many characters, its end kept: "…/matmul_1".
std::string shortened(const std::string& name, std::size_t most);
double text_width(std::string_view text, double size);

}  // namespace belfry::picture
