// How what towers hold becomes one value: what a join asks of whoever computes it.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/shape.h>

namespace belfry {

/// Towers [low, high) whose joined value is one part.
struct JoinPart {
  int low = 0, high = 1;
  LocalType type;
};

/// "sum" or "max" along the tree over `towers` (those past the last part are absent), "mean" (the sum over the number of
/// `present` towers), "concat_rows" along `axis`, "stack", or "same".
struct JoinRequest {
  std::string how;
  int axis = 0, towers = 1, present = 1;
  std::vector<JoinPart> parts;
  /// Numbers of the parts in the order of a ring, each added to the sum of those before it; empty: along the tree.
  std::vector<int> ring = {};
  /// Of what is computed, filled in where a kernel is asked for: a program for a stack, n ≥ 0 pushes part n, -1 joins the top two.
  std::vector<int> tree = {};
};

}  // namespace belfry
