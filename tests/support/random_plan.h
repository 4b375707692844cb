// Random plans: a net, a strategy, devices and options, each drawn by number, so that whoever draws can shrink and repeat.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <belfry/placer/place.h>

namespace belfry::test {

/// A number from 0 to n - 1, with what it decides; 0 is the simplest.
using Draw = std::function<int(const char* what, int n)>;

struct RandomPlan {
  std::string what;                    ///< in words
  std::shared_ptr<const Graph> graph;
  PlaceOptions options;                ///< it was placed with these
  bool references = false;             ///< all its kernels are references, and no device is a GPU: it can be run
  PlacedGraph plan;
};

/// UserError where what was drawn cannot be placed. `to_run`: only what can be run here.
RandomPlan random_plan(const Draw& draw, bool to_run);

}  // namespace belfry::test
