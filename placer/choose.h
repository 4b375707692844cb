// Choosing among strategies by forecast: what `auto` does.
#pragma once

#include <cstdint>
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
  bool bound = false;          ///< it takes at least so long, and no more was found out
  std::int64_t peak = 0;       ///< bytes of the device that takes the most
  std::string fullest;         ///< that device
  std::string refused;         ///< why it cannot be taken; empty: it can
  std::int64_t lacking = 0;    ///< bytes that the device lacks which lacks the most
  std::shared_ptr<PlacedGraph> plan = {};  ///< of the first one
};

/// Scores the candidates of a choice, and then, again and again, what its `near` says of those that are good so far: the best of each
/// strategy that is not far behind the best of all. Of many devices, what cannot become one of these is not forecast to its end, nor placed
/// where the peaks of its devices tell so. Fastest first; equally fast ones in the order in which they were looked at, refused ones last. Where all are refused, the first is the one that lacks the least memory, if there is such a one; it alone has its plan.
std::vector<Candidate> look_at(const std::shared_ptr<const Graph>& graph, const Strategy& choice, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options = {});

/// The same; UserError where none can be taken, with the reason of each.
std::vector<Candidate> choose(const std::shared_ptr<const Graph>& graph, const Strategy& choice, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options = {});

/// Its name, and its options as the command line takes them.
std::string describe(const Strategy& strategy);
/// A table: strategy, step time, peak, or why it was refused.
std::string describe(const std::vector<Candidate>& candidates);

}  // namespace belfry
