// Gradients gathered into buckets, whose size is what the forecast of one pass backward asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <belfry/graph/plan/cost.h>
#include <belfry/placer/strategy.h>

namespace belfry {

/// What one sum over the devices takes: fixed seconds, and more for every byte. A ranged one is two collectives.
struct SumCost {
  double fixed = 0, per_byte = 0;
};

/// Of a step with these buckets, by node of the tower graph.
struct StepForecast {
  std::function<std::optional<double>(const std::vector<int>& of)> seconds;  ///< none: it is not known
  std::function<bool(const std::vector<int>& of)> fits;                      ///< into the devices' memory
};

struct Buckets {
  std::vector<int> of;   ///< per node of the tower graph; 0: it goes by itself
  std::string reason;    ///< the size, its cost and those of other sizes; empty where there is nothing to gather
};

/// Sums of gradients in the order in which backward makes them, those of `ranged` apart from the others. `sums` are the nodes.
/// `bytes`: at least so many a bucket; 0: no buckets; none: of some sizes that fit the one with the shortest step by `forecast`, or, where that says nothing,
/// the one with which the last sum ends first.
Buckets bucketed(const TowerGraph& graph, const Cluster& cluster, const CostTable& costs, const std::vector<DeviceId>& devices, const std::vector<int>& sums, const std::vector<bool>& ranged,
                 std::optional<std::int64_t> bytes, SumCost whole, SumCost in_ranges, const StepForecast& forecast);

/// Sums of the towers' gradients which no tower reads: those that may be gathered.
std::vector<int> sums_of_gradients(const TowerGraph& graph);

}  // namespace belfry
