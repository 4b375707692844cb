// What would help where a plan does not fit: changes that were tried, each with what it takes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>
#include <belfry/placer/strategy.h>

namespace belfry {

/// Gives the plan of a strategy and batch if it fits.
using TryPlan = std::function<std::optional<PlacedGraph>(const Strategy& strategy, std::int64_t batch)>;

/// Options of the command line that make a plan fit: "--towers 4 (at most 96 bytes, on sim:0)". Tried are more towers, 1f1b, variables
/// elsewhere, other strategies, more devices of the cluster, and smaller batches; of each kind the first that fits is named. How many
/// are tried depends on the size of the plan alone. A strategy without `divide` is that of a plan's file, of which the batch alone can change.
std::vector<std::string> memory_advice(const PlacedGraph& refused, const Strategy& strategy, const std::vector<StrategyDef>& known, const TryPlan& attempt);

/// "weights 4096, h of tower 0 96": what is live at the peak of a device that is over its memory, the largest first.
std::string tensors_at_peak(const PlacedGraph& refused);

}  // namespace belfry
