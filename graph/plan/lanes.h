// Lanes: steps that need not wait for each other, side by side on streams of one device, with the fewest waits between them; or as one launch.
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

/// What a step is to others that may be one launch with it.
struct Joining {
  int kind = -1;                         ///< those of one kind can be; -1: it stands alone
  int most = 1;                          ///< so many of its kind
  bool ends = false;                     ///< what stands before it is launched before it
};
/// Per step the one in whose place it is launched: the last of its launch, itself where it is alone. A step waits for more of its kind until there are
/// the most, or another must follow one of them.
std::vector<int> joined(const Precedence& all, std::span<const Joining> steps);

struct Lanes {
  int count = 0;
  std::vector<int> lane;                 ///< per step
  std::vector<std::vector<int>> waits;   ///< per step: earlier ones on other lanes
};

/// Steps that are independent of each other get lanes of their own, and of all such assignments this one has the fewest waits:
/// as many as the reduced order has pairs, less those of a maximum matching (Kwon et al., Nimble, NeurIPS 2020, theorems 1 and 2).
Lanes assign_lanes(const Precedence& reduced);

}  // namespace belfry
