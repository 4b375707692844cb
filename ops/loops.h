// Index arithmetic for reference code: row-major walks and broadcast offsets.
#pragma once

#include <vector>

#include <belfry/graph/shape.h>

namespace belfry {

/// Calls f(index) for every index of the extents, row-major.
template <class F>
void for_each_index(const Extents& extents, F&& f) {
  if (elements(extents) == 0) return;
  Extents index(extents.size(), 0);
  while (true) {
    f(static_cast<const Extents&>(index));
    std::size_t axis = extents.size();
    while (axis > 0 && ++index[axis - 1] == extents[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

/// The row-major offset of an index whose trailing axes are aligned with `extents`; axes of size 1 stay at 0.
inline std::size_t offset_of(const Extents& index, const Extents& extents) {
  std::size_t out = 0, skip = index.size() - extents.size();
  for (std::size_t i = 0; i < extents.size(); ++i) out = out * static_cast<std::size_t>(extents[i]) + static_cast<std::size_t>(extents[i] == 1 ? 0 : index[skip + i]);
  return out;
}

/// Product of the extents in [first, past).
inline std::int64_t product(const Extents& extents, std::size_t first, std::size_t past) {
  std::int64_t out = 1;
  for (std::size_t i = first; i < past; ++i) out *= extents[i];
  return out;
}

/// The extents cut at an axis: outer × n × inner.
struct AlongAxis {
  AlongAxis(const Extents& e, int axis)
      : outer(product(e, 0, static_cast<std::size_t>(axis))), n(e[static_cast<std::size_t>(axis)]), inner(product(e, static_cast<std::size_t>(axis) + 1, e.size())) {}
  std::int64_t outer, n, inner;
  std::size_t at(std::int64_t o, std::int64_t k, std::int64_t i) const { return static_cast<std::size_t>((o * n + k) * inner + i); }
};

}  // namespace belfry
