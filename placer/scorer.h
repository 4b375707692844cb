// Scores placements of one graph: step time and bytes per device of each, to the last digit those of its finished plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <belfry/graph/plan/cost.h>
#include <belfry/placer/place.h>

namespace belfry {

struct Score {
  double step_seconds = 0;
  std::vector<std::int64_t> peak;      ///< planned bytes per device of the cluster
  std::vector<std::string> over;       ///< what over_memory says; empty: the plan fits
};

/// For searches: what placements of a graph share is made once. It runs the parts of place() and forecast(), and leaves out
/// what no score depends on: hash, texts of the forecast, values at the peak.
class Scorer {
 public:
  Scorer(std::shared_ptr<const Graph> graph, Cluster cluster, CostTable costs = {}, PlaceOptions options = {});
  ~Scorer();
  Scorer(Scorer&&) noexcept;

  /// Of place(graph, placement, cluster, options) and its forecast; the UserErrors of both. The first `must_decide` rules
  /// must each decide something, and trees of the options' groups give way to them. Tower graphs of the last few towers, batches, ways to combine and threads are kept. Of a step that takes longer than
  /// `limit` seconds, only that it takes more.
  Score operator()(const Placement& placement, std::size_t must_decide = 0, double limit = std::numeric_limits<double>::infinity());
  /// The step time alone, whether it fits or not: less work by a third.
  double seconds(const Placement& placement, std::size_t must_decide = 0);
  const Cluster& cluster() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// The score of one placement.
Score forecast(std::shared_ptr<const Graph> graph, const Cluster& cluster, const Placement& placement, const CostTable& costs = {}, const PlaceOptions& options = {});

}  // namespace belfry
