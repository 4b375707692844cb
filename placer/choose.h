// Choosing among strategies by forecast: what `auto` does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <belfry/graph/plan/cost.h>
#include <belfry/placer/place.h>

namespace belfry {

/// A strategy that was looked at.
struct Candidate {
  Strategy strategy;
  double seconds = 0;          ///< of a step, forecast
  std::int64_t peak = 0;       ///< bytes of the device that takes the most
  std::string fullest;         ///< that device
  std::string refused;         ///< why it cannot be taken; empty: it can
  std::shared_ptr<PlacedGraph> plan = {};  ///< of the first one
};

/// Places and forecasts every candidate, fastest first; equally fast ones in the order given, refused ones last.
/// UserError where none can be taken, with the reason of each.
std::vector<Candidate> choose(std::shared_ptr<const Graph> graph, const std::vector<Strategy>& candidates, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options = {});

/// A table: strategy, step time, peak, or why it was refused.
std::string describe(const std::vector<Candidate>& candidates);

}  // namespace belfry
