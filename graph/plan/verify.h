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

}  // namespace belfry
