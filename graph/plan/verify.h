// The verifier of plans: what `run` accepts is what this finds nothing wrong with.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Objections, each opening with its kind: "no kernel", "no reason", "no cause", "no order", "no device", "dangling",
/// "made twice", "type", "split", "two copies", "needless copy", "no link", "state", "stream of another device", "phase", "unbound",
/// "thread", "memory", "alignment", "outside", "stuck", "missing wait", "overlap". Empty: the plan runs.
std::vector<std::string> verify(const PlacedGraph& plan);

/// What is wrong with a result that a fetch brings: another node brings what the name says, or the graph means another value by it.
/// Empty: nothing.
std::string objection_to_result(const PlacedGraph& plan, const std::string& name, ValueIndex fetched);

}  // namespace belfry
