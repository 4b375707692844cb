// What strategies with towers on several devices have in common.
#pragma once

#include <vector>

#include <belfry/graph/plan/cost.h>
#include <belfry/placer/strategy.h>

namespace belfry {

/// So many towers, or one per device, each a share of the batch that runs by itself.
Division one_per_device(const std::vector<DeviceId>& devices, int towers, Combine combine, int threads, Reduce reduction = Reduce::tree, Collectives collectives = Collectives::tree);

/// Behind the rules of `before`: the largest variables first, each with its slots and its update to the device that has least;
/// what several devices' variables share to the first.
Rules spread_over(const std::vector<DeviceId>& devices, const TowerGraph& tg, Rules before);

/// The same by cost: each to where the busiest way or device is busy the least by what was placed before and by it: its parts that
/// come there from the towers' devices, its update, its value that goes to them. The reasons have the losers' costs.
Rules chosen_over(const std::vector<DeviceId>& devices, const std::vector<DeviceId>& towers, const TowerGraph& tg, const Cluster& cluster, const CostTable& costs, Rules before);

/// A variable that follows no other, in the order of their names, with the bytes of all that follow it.
struct VariableHead {
  NodeId node = -1;
  std::int64_t bytes = 0;
};
/// The largest first, then by name.
std::vector<VariableHead> variable_heads(const Graph& graph);

/// Rules that put each variable, all that follows it and its update on the device with the number that its head has.
Rules put_variables(const TowerGraph& tg, const std::vector<DeviceId>& devices, const std::vector<VariableHead>& heads, const std::vector<std::size_t>& device, const std::vector<std::string>& reasons, Rules before);

/// The first of the devices of each link group, in order. UserError where hierarchical sums would be those of the tree: one group, or
/// one device in each.
std::vector<DeviceId> leaders_of(const Cluster& cluster, const std::vector<DeviceId>& devices);

/// Sums, maxima and means over towers: what a way of reducing speaks of.
bool adds_towers(const PlanNode& n);

}  // namespace belfry
