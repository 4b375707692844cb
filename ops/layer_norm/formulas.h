// What the references and kernels of layer_norm and group_norm share: how x is cut.
#pragma once

#include <belfry/graph/contexts.h>
#include <belfry/ops/loops.h>

namespace belfry {

/// x as (examples, places, groups, width). Moments are taken over the places and the width of a group; gamma and beta hold
/// groups·width values.
struct NormLayout {
  NormLayout(const Attributes& a, const Extents& x) {
    if (a.find("groups")) {
      groups = a.integer("groups");
      examples = x[0];
      places = product(x, 1, x.size() - 1);
      width = x.back() / groups;
    } else {
      auto axis = static_cast<std::size_t>(from_front(a.integer("axis"), static_cast<int>(x.size())));
      examples = product(x, 0, axis);
      width = product(x, axis, x.size());
    }
  }
  std::int64_t channels() const { return groups * width; }
  std::int64_t example() const { return places * channels(); }
  /// Where the run of a group at a place begins.
  std::int64_t run(std::int64_t e, std::int64_t place, std::int64_t group) const { return e * example() + place * channels() + group * width; }

  std::int64_t examples = 1, places = 1, groups = 1, width = 1;
};

}  // namespace belfry
