// Random nets that train: grown by steps that can be left out, so that a failing one shrinks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <belfry/frontends/builder/builder.h>

namespace belfry::test {

/// A rule of growing and the seed of its choices among the values that are there.
struct NetStep {
  int rule = 0;
  std::uint64_t seed = 0;
};
struct NetRecipe {
  std::uint64_t seed = 0;
  std::vector<NetStep> steps;
};

/// Up to 10 steps, of a few nodes each: 5 to 60 nodes in all, before gradients.
NetRecipe random_recipe(std::uint64_t seed);
/// The graph as its user would write it, with a loss, metrics and an optimizer. Its towers together give the whole.
Graph grown(const NetRecipe& recipe, DType dtype);
std::string to_string(const NetRecipe& recipe);

}  // namespace belfry::test
