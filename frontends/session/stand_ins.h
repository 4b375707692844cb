// Other devices in place of a plan's own: its decisions with their names, on a cluster of this machine.
#pragma once

#include <string>
#include <vector>

#include <belfry/frontends/session/session_options.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Those on which the plan has nodes, in the cluster's order: others of the cluster need not be here.
std::vector<DeviceId> used_devices(const PlacedGraph& plan);

/// The devices of a plan that others can stand in for, in the cluster's order: those that its decisions name and that are no CPUs of this host; where all are, these.
std::vector<DeviceId> replaceable_devices(const PlacedGraph& plan);

/// The decisions with `devices` in place of `replaceable_devices`, one by one. UserError where these are not as many, or one is named that has its own part in the plan.
Placement with_stand_ins(const PlacedGraph& plan, const std::vector<DeviceId>& devices);

/// The same of a placement's rules, in the order of `named_devices`.
std::vector<DeviceId> replaceable_devices(const std::vector<PlacementRule>& rules);

/// The rules with `devices` in place of these; as they are where `devices` have all of them.
std::vector<PlacementRule> with_stand_ins(std::vector<PlacementRule> rules, const std::vector<DeviceId>& devices);

/// What rules name, each once, CPUs last.
std::vector<DeviceId> named_devices(const std::vector<PlacementRule>& rules);

/// "sim:0-1" for as many devices.
std::string sims_for(std::size_t count);

/// The words that offer others in place of GPUs that cannot be used, and say how they are named: of a plan with the options' moves,
std::string stand_ins_of(const PlacedGraph& plan, const SessionOptions& options);
/// of a graph on the devices that a strategy has,
std::string stand_ins_of(const Graph& graph, const std::vector<DeviceId>& devices, const SessionOptions& options);
/// and of a graph with the rules of a placement file, which are not among those of the options yet.
std::string stand_ins_of(const Graph& graph, const std::vector<PlacementRule>& rules, const SessionOptions& options);

}  // namespace belfry
