// How long a step of a plan will take, and why: its streams walked by discrete events with a cost for every launch and move.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/plan/cost.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// One launch of the forecast step; times are seconds from its start.
struct ForecastLaunch {
  int node = -1, tower = -1, device = -1, stream = 0;
  double begin = 0, end = 0;
  double moving = 0;               ///< of it, in which bytes come over links or a collective is under way
  double fixed = 0;                ///< of it, what fewer rows would not save
};

struct StreamForecast {
  int stream = 0;
  double busy = 0;                 ///< seconds
};

struct DeviceForecast {
  int device = 0;
  double busy = 0;                 ///< seconds of its launches, per thread that runs them; of a GPU those of its kernels
  std::int64_t bytes = 0;          ///< planned
  /// Of them the most that hold values, or are a kernel's scratch, at one time, variables included. Of the devices that hold the same, for the
  /// first alone; 0 for the others, and where the plan does not say where all lies.
  std::int64_t live = 0;
  /// What is live then, the largest first: name and bytes.
  std::vector<std::pair<std::string, std::int64_t>> peak;
};

struct LinkForecast {
  std::string from, to;            ///< spaces, or switches of the cluster file
  double bytes = 0;
  double busy = 0;                 ///< seconds at its whole bandwidth; 0 where the cluster says nothing of it
};

struct Forecast {
  double seconds = 0;              ///< of a step
  double landed = 0;               ///< of them, until the feeds of the next step are on its GPUs; 0 where none land there
  std::vector<ForecastLaunch> launches;                ///< stream by stream, in order
  std::vector<int> path;                               ///< the launches that the end waited for, in time
  std::vector<StreamForecast> streams;
  std::vector<DeviceForecast> devices;                 ///< those that have work or bytes
  std::vector<LinkForecast> links;                     ///< that carry something, the most first
  std::array<double, kCostSources> by_source{};        ///< seconds of kernels, by how sure they are
};

/// Equal plans, clusters and tables give equal forecasts. UserError where no link leads where bytes must go, or streams wait
/// for each other.
Forecast forecast(const PlacedGraph& plan, const CostTable& costs = {});

/// Forecasts of one plan that is placed again and again: routes over links and costs of launches are found once.
class Forecaster {
 public:
  /// Both must live as long.
  Forecaster(const PlacedGraph& plan, const CostTable& costs);
  Forecaster(PlacedGraph&&, const CostTable&) = delete;
  Forecaster(const PlacedGraph&, CostTable&&) = delete;
  ~Forecaster();
  /// Seconds of the step alone, of the plan as it now is, with these of it: its first values are still those that it had. Where the step
  /// takes longer than `limit`, seconds above it that it takes at least.
  double seconds(std::size_t kept_values, const Instances& instances, const NumberLists& readers, double limit = std::numeric_limits<double>::infinity());
  Forecast whole();

 private:
  struct Parts;
  const PlacedGraph& plan_;
  const CostTable& costs_;
  std::unique_ptr<Parts> parts_;
};

/// Seconds at the end of a step in which nothing runs: the feeds of the next one are still on their way.
double waits_for_feeds(const Forecast& forecast);

/// What the critical path is made of, by node: launches of one node, its towers together, the most seconds first.
struct PathShare {
  std::string node, device;
  double seconds = 0, moving = 0;
  int launches = 0;
};
std::vector<PathShare> path_shares(const PlacedGraph& plan, const Forecast& forecast);

/// "more devices will not help, because …" with the bottleneck by name; empty where twice the devices, could everything that
/// towers compute be halved for nothing, would save a tenth of the step or more.
std::string why_not_more(const PlacedGraph& plan, const Forecast& forecast);

}  // namespace belfry
