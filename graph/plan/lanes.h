// Lanes: steps that need not wait for each other, side by side on streams of one device, with the fewest waits between them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <belfry/graph/plan/bound_plan.h>

namespace belfry {

/// Per step earlier ones that it must follow, ascending.
using Precedence = std::vector<std::vector<int>>;

/// Of steps in an order in which they could run one by one: a step follows another where one writes bytes that the other reads
/// or writes.
Precedence precedence(std::span<const Step* const> steps);
/// The same order without the pairs that follow from others.
Precedence reduced(const Precedence& all);

struct Lanes {
  int count = 0;
  std::vector<int> lane;                 ///< per step
  std::vector<std::vector<int>> waits;   ///< per step: earlier ones on other lanes
};

/// Steps that are independent of each other get lanes of their own, and of all such assignments this one has the fewest waits:
/// as many as the reduced order has pairs, less those of a maximum matching (Kwon et al., Nimble, NeurIPS 2020, theorems 1 and 2).
Lanes assign_lanes(const Precedence& reduced);

}  // namespace belfry
