// Elementwise walks over operands that are stretched or permuted: axes that lie together are merged, the last one is a run.
#pragma once

#include <array>

#include <belfry/ops/cpu/parallel_internal.h>
#include <belfry/graph/shape.h>

namespace belfry {

/// Strides of an operand along the axes of the output it is stretched to: 0 where it has size 1 or no axis.
Extents stretched_strides(const Extents& operand, const Extents& out);

/// A walk over a dense output with N operands by strides, in elements.
struct Walk {
  Walk(const Extents& out, const std::vector<Extents>& operand_strides);
  std::int64_t outer = 1;                     ///< runs
  std::int64_t run = 1;                       ///< elements of a run
  Extents sizes;                              ///< of the axes before the last
  std::vector<Extents> strides;               ///< per operand, of these axes
  std::vector<std::int64_t> inner;            ///< per operand, along the run
  std::int64_t elements() const { return outer * run; }
};

/// Calls f(out_offset, operand offsets, count) for each run, on the given threads.
template <std::size_t N, class F>
void for_each_run(const Walk& w, int threads, const F& f) {
  auto part = [&](std::int64_t first, std::int64_t past, std::int64_t begin, std::int64_t end) {
    std::array<std::int64_t, N> at{};
    Extents index(w.sizes.size());
    for (std::int64_t axis = static_cast<std::int64_t>(w.sizes.size()) - 1, left = first; axis >= 0; --axis) {
      auto a = static_cast<std::size_t>(axis);
      index[a] = left % w.sizes[a];
      left /= w.sizes[a];
      for (std::size_t k = 0; k < N; ++k) at[k] += index[a] * w.strides[k][a];
    }
    for (std::size_t k = 0; k < N; ++k) at[k] += begin * w.inner[k];
    for (std::int64_t o = first; o < past; ++o) {
      f(o * w.run + begin, at, end - begin);
      for (std::size_t a = w.sizes.size(); a-- > 0;) {
        for (std::size_t k = 0; k < N; ++k) at[k] += w.strides[k][a];
        if (++index[a] < w.sizes[a]) break;
        for (std::size_t k = 0; k < N; ++k) at[k] -= w.sizes[a] * w.strides[k][a];
        index[a] = 0;
      }
    }
  };
  if (w.elements() == 0) return;
  if (w.outer >= 2 * threads) for_ranges(w.outer, w.elements(), threads, [&](std::int64_t first, std::int64_t past) { part(first, past, 0, w.run); });
  else for_ranges(w.run, w.elements(), threads, [&](std::int64_t begin, std::int64_t end) { part(0, w.outer, begin, end); }, 16);
}

}  // namespace belfry
