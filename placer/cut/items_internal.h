// The items of a cutting problem: what must be together is one item, values that move alike are one value.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include <belfry/graph/plan/cut_problem.h>

namespace belfry::cutting {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kLess = 1 - 1e-9;     ///< a better split is better by more than this
inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Moves from its owner to those that read it.
struct ItemValue {
  double seconds = 0;
  int owner = -1;
  std::vector<int> readers;                   ///< other items, ascending
};

/// Items in a topological order of "no later device than": edges go from smaller numbers to larger ones.
struct Items {
  int count = 0;
  std::vector<std::vector<int>> next, before; ///< without edges that others imply, where there are few enough items
  std::vector<std::vector<double>> seconds;   ///< per kind and item
  std::vector<double> bytes;
  std::vector<ItemValue> values;
  std::vector<std::vector<int>> touches;      ///< per item, the values that it owns or reads
  std::vector<std::vector<int>> nodes;        ///< of the problem
};

/// Per node, the number of its class; nodes of no class are each their own.
std::vector<int> classes_of(const CutProblem& problem);
/// Classes and what a cycle joins are one item. UserError for edges that make a cycle among nodes.
Items items_of(const CutProblem& problem);
/// Items merged by group, which must leave no cycle; numbered anew by `rank` of groups, which must be topological, or
/// depth first without one.
Items merged(const Items& items, const std::vector<int>& group, const std::vector<int>& rank = {});
/// Items that no best split needs to cut apart are merged.
Items contracted(Items items, const std::vector<CutKind>& kinds);
/// Which edges order devices: from the item of `first` to that of `second`.
std::vector<std::pair<int, int>> order_edges(const CutProblem& problem);

}  // namespace belfry::cutting
