// Other devices in place of a plan's own: its decisions with their names, on a cluster of this machine.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Those on which the plan has nodes, in the cluster's order: others of the cluster need not be here.
std::vector<DeviceId> used_devices(const PlacedGraph& plan);

/// The devices of a plan that others can stand in for, in the cluster's order: those that its decisions name and that are no CPUs; where all are CPUs, these.
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

}  // namespace belfry
