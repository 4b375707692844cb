// What comes first, and who is in: shared by references and kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace belfry::top_k_formulas {

/// Whether a stands before b where both are wanted largest first (or smallest first); NaN is above all numbers.
template <class T>
bool before(T a, T b, bool largest) {
  if constexpr (std::numeric_limits<T>::has_quiet_NaN) {
    if (a != a || b != b) return largest ? a != a && b == b : a == a && b != b;
  }
  return largest ? a > b : a < b;
}

template <class T>
bool in_top(const T* predictions, std::int64_t classes, std::int64_t target, std::int64_t k) {
  if (target < 0 || target >= classes || !std::isfinite(predictions[target])) return false;
  std::int64_t above = 0;
  for (std::int64_t i = 0; i < classes; ++i) {
    if (!std::isfinite(predictions[i])) return false;
    above += predictions[i] > predictions[target];
  }
  return above < k;
}

}  // namespace belfry::top_k_formulas
