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

}  // namespace belfry
