// Measuring what launches cost where they run: traces of real steps become a table.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <belfry/executor/run.h>
#include <belfry/frontends/session/session.h>
#include <belfry/graph/plan/cost.h>

namespace belfry {

/// The median of some rounds; a quarter of them is below `quarter`, a tenth below `low`, a tenth above `high`. On a machine
/// with other work the quarter is nearer to what a launch costs; on a quiet one all are near each other.
struct MeasuredSeconds {
  double median = 0, quarter = 0, low = 0, high = 0, mean = 0;
};
/// What a table keeps of many rounds. Means of launches add up to the mean of steps whatever else the machine does, which
/// tells an error of the model from its noise; quarters are nearer to what a quiet machine needs.
enum class Keep { quarter, mean };

/// Feeds for a step of so many rows that any net can eat: floats from 0 to 1, zeros of all other types.
std::map<std::string, HostTensor> synthetic_feeds(const Graph& graph, std::int64_t batch);

/// Collects the launches of many steps, of any plans of this machine. A kernel is measured in its place, with the caches and
/// the neighbours that it has there.
class Calibration {
 public:
  /// A traced step of a plan.
  void add_trace(const BoundPlan& bound, const std::vector<TraceEntry>& trace);
  /// A step of the same plan that was run without a trace, in seconds: what it took beside its launches.
  void add_step(const BoundPlan& bound, double seconds);
  /// Of all that was added; `machine` in words.
  CostTable table(std::string machine, Keep keep = Keep::quarter) const;

 private:
  struct Samples {
    Work work;
    std::vector<double> seconds;
  };
  struct PlanTimes {
    bool one_thread = true;
    std::size_t launches = 0;
    std::vector<double> steps, sums;                         ///< of untraced steps whole; of traced ones their launches
  };
  std::map<std::string, std::map<std::int64_t, Samples>> kernels_;
  std::map<std::string, PlanTimes> plans_;
  std::vector<double> gaps_, handoffs_;
};

MeasuredSeconds spread_of(std::vector<double> seconds);
/// One step, timed.
double timed_step(Session& session, const std::map<std::string, HostTensor>& feeds, const std::vector<std::string>& fetches = {});

/// Bytes a second that one thread of this host moves from memory to memory, the best of a few rounds.
double memmove_bandwidth();

}  // namespace belfry
