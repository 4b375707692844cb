// Searches over chains of prefixes: which device takes what, part by part.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <belfry/placer/cut/items_internal.h>

namespace belfry::cutting {

/// What a search over items found.
struct Split {
  double value = 0;
  std::vector<int> device;      ///< per item; devices are numbered kind by kind
  std::vector<int> part;        ///< per item, the number of its device along the chain
};

struct Answer {
  std::optional<Split> best;
  double bound = 0;             ///< no split is better
  bool finished = true;         ///< false: steps ran out
};

/// The split of the smallest load; `known` is one to beat. Rising caps: what a cap rules out is a bound.
Answer least_load(const Items& items, const std::vector<CutKind>& kinds, const std::optional<Split>& known, std::int64_t& steps);
/// The same by latency, over the nodes' own passes; devices are per node.
Answer least_latency(const CutProblem& problem, const Items& items, const std::optional<Split>& known, std::int64_t& steps);
/// Neighbours in the items' order merged where a cut costs much, about `count` of them left; `groups`: of which each became.
Items coarsened(const Items& items, int count, std::vector<int>& groups);
/// A split whose parts are intervals of the items' order, the best of them but for rounding; none where nothing fits.
std::optional<Split> by_intervals(const Items& items, const std::vector<CutKind>& kinds);

}  // namespace belfry::cutting
