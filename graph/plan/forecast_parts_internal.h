// What a forecast is made of beside its walk: what steps move over links, and what is said of streams, devices and memory.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/forecast_steps_internal.h>
#include <belfry/graph/plan/links.h>

namespace belfry {

/// The moves of steps, where the cluster says what its links are; else all costs are those of memory.
class Transfers {
 public:
  Transfers(ForecastSteps& steps, Links& links);

  /// Whether it takes anything to where it runs: of all others there is nothing to ask.
  bool moves(int step) const { return moves_[static_cast<std::size_t>(steps_.steps[static_cast<std::size_t>(step)].node)]; }

  /// One node on several GPUs that hold its parts: they run it together.
  bool collective(int step);
  struct Collective {
    double seconds = 0;
    double kernel = 0;                           // of them those of a kernel that waits for links: a sum's, or a library's; gathers are copies
    double bytes = 0;                            // that each member's memory reads and writes
  };
  /// Reduce-scatter along the tree, then all-gather; rows side by side and stacks are one all-gather.
  Collective collective_cost(int step, std::vector<double>& load);
  /// For how long at least the kernel of a sum reads what other GPUs hold; 0 for what is no sum.
  double reading(int step, const std::vector<Flow>& flows) const;
  /// What comes over links; from each space once.
  std::vector<Flow> flows(int step);
  /// Of the feeds of the step after this one, to the GPUs on which they land.
  std::vector<std::pair<int, Flow>> landing() const;
  /// Until the first byte of some flows is there; negative where there are none. Those of a bucket come behind one another, so
  /// that the first pays for all.
  double latency(int step, const std::vector<Flow>& flows) const;
  /// Whether nothing is left to do when bytes that come over links are there.
  bool arrives_in_place(int step) const;
  int parts(int step);

 private:
  /// Whether the step before it on its stream is the same of the same bucket.
  bool follows(int step) const;
  const PlanNode& node(int step) const { return plan_.nodes[static_cast<std::size_t>(steps_.steps[static_cast<std::size_t>(step)].node)]; }
  /// Devices, ascending, and the bytes that each has.
  std::vector<std::pair<int, double>> sources(int step);

  ForecastSteps& steps_;
  Links& links_;
  const PlacedGraph& plan_;
  std::vector<char> moves_;                      // per node
  enum Known : char { kUnknown, kAlone, kTogether };
  std::vector<Known> collectives_;               // per node
  std::map<std::pair<int, int>, int> parts_;     // by node, and device where each has its own
};

/// Busy seconds of streams and devices.
void add_uses(const PlacedGraph& plan, const ForecastSteps& steps, Forecast& out);
/// Planned bytes, and what is live at the fullest time.
void add_memory(const PlacedGraph& plan, ForecastSteps& steps, Forecast& out);

}  // namespace belfry
