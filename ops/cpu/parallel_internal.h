// Cutting a kernel's work over its threads. The cut never changes a result: each part writes what the others do not.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace belfry {

/// Below this many elements a fork costs more than it saves.
inline constexpr std::int64_t kWorthAFork = 32 * 1024;

/// Calls f(begin, end) over [0, n) on up to `threads` threads. `work` is the whole's size in elements; begins are multiples
/// of `step`. f must not throw.
template <class F>
void for_ranges(std::int64_t n, std::int64_t work, int threads, F&& f, std::int64_t step = 1) {
  if (threads <= 1 || work < kWorthAFork || n <= step) {
    if (n > 0) f(std::int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    std::int64_t count = omp_get_num_threads(), me = omp_get_thread_num(), steps = (n + step - 1) / step;
    std::int64_t begin = std::min(n, steps * me / count * step), end = std::min(n, steps * (me + 1) / count * step);
    if (begin < end) f(begin, end);
  }
}

/// Calls f(part, begin, end) for parts of [0, n) with numbers below `threads`: a part has scratch of its own.
template <class F>
void for_parts(std::int64_t n, std::int64_t work, int threads, F&& f) {
  std::int64_t parts = std::max(threads, 1);
  for_ranges(parts, work, threads, [&](std::int64_t first, std::int64_t past) {
    for (std::int64_t part = first; part < past; ++part)
      if (std::int64_t begin = n * part / parts, end = n * (part + 1) / parts; begin < end) f(part, begin, end);
  });
}

}  // namespace belfry
