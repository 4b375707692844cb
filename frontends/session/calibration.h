// Measuring what launches cost where they run: traces of real steps become a table.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <belfry/executor/run.h>
#include <belfry/frontends/session/session.h>
#include <belfry/graph/plan/cost.h>

namespace belfry {

/// Of some rounds: the median, the mean of the quieter half, a tenth is below `low`, a tenth above `high`. On a machine with other
/// work the quieter half is nearer to what a step costs; on a quiet one all are near each other.
struct MeasuredSeconds {
  double median = 0, quiet = 0, low = 0, high = 0;
};

/// Feeds for a step of so many rows that any net can eat: floats from 0 to 1, zeros of all other types.
std::map<std::string, HostTensor> synthetic_feeds(const Graph& graph, std::int64_t batch);

/// Collects the launches of many steps, of any plans of this machine. A kernel is measured in its place, with the caches and
/// the neighbours that it has there.
class Calibration {
 public:
  /// A traced step of a plan, and what it took as a whole.
  void add_trace(const BoundPlan& bound, const std::vector<TraceEntry>& trace, double seconds);
  /// Of the quieter half of each plan's steps, means over their launches: so that the launches of a step add up to what those
  /// steps took, which quartiles of single launches do not. `machine` in words.
  CostTable table(std::string machine) const;

 private:
  struct Kernel {
    std::string key;
    std::int64_t rows = 0;
    Work work;
  };
  struct TracedStep {
    double seconds = 0, beside = 0;                          ///< as a whole, and beside its launches
    std::vector<std::pair<int, double>> launches;            ///< kernel and seconds
    std::vector<double> gaps, handoffs, wakes;
  };
  int kernel(const BoundPlan& bound, const Step& step);

  std::vector<Kernel> kernels_;
  std::map<std::pair<std::string, std::int64_t>, int> numbers_;   // of kernels, by key and rows
  std::map<std::string, std::vector<TracedStep>> steps_;          // by plan
};

MeasuredSeconds spread_of(std::vector<double> seconds);
/// Whether other work was in the way: a tenth of the steps took half as long again as the quieter half, or more.
bool disturbed(const MeasuredSeconds& steps);
/// One step, timed; or as the mode says `run` or `predict`.
double timed_step(Session& session, const std::map<std::string, HostTensor>& feeds, const std::vector<std::string>& fetches = {}, Mode mode = Mode::step);
/// The same; its trace is the session's then.
double traced_step(Session& session, const std::map<std::string, HostTensor>& feeds, const std::vector<std::string>& fetches = {}, Mode mode = Mode::step);
/// A step whose time is kept, and with a calibration a traced one: now one of the two is first, now the other. Rounds below 0 keep nothing.
void measure_round(Session& session, const std::map<std::string, HostTensor>& feeds, std::int64_t round, std::vector<double>& seconds, Calibration* calibration, Mode mode = Mode::step);

/// Bytes a second that one thread of this host moves from memory to memory, the best of a few rounds.
double memmove_bandwidth();

}  // namespace belfry
