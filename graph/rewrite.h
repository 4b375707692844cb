// Copying a graph node by node, with a rule that may put other values in a node's place: what passes are made of.
#pragma once

#include <functional>
#include <vector>

#include <belfry/graph/graph.h>

namespace belfry {

/// The values that replace a node's outputs in the new graph, or nullopt to copy the node as it is.
using RewriteRule = std::function<std::optional<std::vector<Value>>(Graph& out, const Node& node, NodeId id, const std::vector<Value>& inputs)>;

/// Names, losses, metrics, updates and outputs follow. New nodes take device, role and `of` of the node they stand for.
Graph rewrite(const Graph& graph, const RewriteRule& rule);
/// Copies these nodes alone, in this order; each must stand behind what it reads and follows.
Graph rewrite(const Graph& graph, const RewriteRule& rule, const std::vector<NodeId>& nodes);
/// A copy of the nodes that the values are computed from.
Graph only(const Graph& graph, const std::vector<ValueId>& of);

/// All nodes that the values are computed from, themselves included.
std::vector<bool> ancestors(const Graph& graph, const std::vector<ValueId>& of);
/// Every value that somebody asks for: outputs, metrics, losses, updates, the short form's losses.
std::vector<ValueId> roots(const Graph& graph);

}  // namespace belfry
