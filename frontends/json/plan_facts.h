// What a plan is about as JSON for machines: what `belfry place --json` and `belfry show PLAN --json` write.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Entries of an object: "net", "strategy", "options", "batch", "towers", "threads", "combine", "precision" and "arithmetic_hash", by the keys of run.json and of
/// plans; "nondeterministic": how many nodes may have other bits each time; "devices" as below; "links" as [from, to, bytes of a step].
std::vector<std::string> plan_facts(const PlacedGraph& plan);
/// {"device", "bytes" that are planned, of them "state", "shared", "kept" and "transient" frames, "live_values": the most that are live at once beside the state, and
/// "memory": all that there is} of each device of the cluster.
std::vector<std::string> device_facts(const PlacedGraph& plan);
/// {"name", "op", "devices", "reason"} of each node, in the plan's order.
std::vector<std::string> node_facts(const PlacedGraph& plan);

}  // namespace belfry
