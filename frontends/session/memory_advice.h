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

/// Gives the plan of a strategy, batch and stretches to compute again (0: as the strategy says) if it fits.
using TryPlan = std::function<std::optional<PlacedGraph>(const Strategy& strategy, std::int64_t batch, int recompute)>;

/// A plan that does not fit: what was asked for, and which strategy made it. They differ where a choice found nothing that fits.
struct RefusedPlan {
  const PlacedGraph& plan;
  const Strategy& asked;
  const Strategy& made_by;
  int recompute = 0;  ///< stretches that were asked for
};

/// Options of the command line that make a plan fit, to be added to those that were given or put in their place:
/// "--strategy sharded --towers 4, without -O variables=cpu:0 (at most 96 bytes, on sim:0)". Tried are 1f1b, more towers, variables elsewhere,
/// other strategies, more devices of the cluster and recomputation, of each kind until one fits; then two of these and more at once, where none of
/// them alone helps; then smaller batches, and all on a device of another kind, as on the host. How many are tried (16 to 80) depends on the size of
/// the plan alone; each takes as long as placing it. Of a strategy that was not made by name only
/// towers, recomputation and batch can change; of a plan's file, which has no `divide`, the batch alone.
std::vector<std::string> memory_advice(const RefusedPlan& refused, const std::vector<StrategyDef>& known, const TryPlan& attempt);

/// "weights 4096, h of tower 0 96": what is live at the peak of a device that is over its memory, the largest first.
std::string tensors_at_peak(const PlacedGraph& refused);

}  // namespace belfry
