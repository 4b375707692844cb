// The greater and the lesser of two numbers, where a NaN stays: elementwise and over axes.
#pragma once

#include <limits>

namespace belfry::extremes {

/// kStart is what folding begins with: less than all others.
struct Max {
  template <class T> static constexpr T kStart = std::numeric_limits<T>::has_infinity ? static_cast<T>(-std::numeric_limits<T>::infinity()) : std::numeric_limits<T>::lowest();
  template <class T> T operator()(T a, T b) const { return a >= b || a != a ? a : b; }
};
struct Min {
  template <class T> static constexpr T kStart = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  template <class T> T operator()(T a, T b) const { return a <= b || a != a ? a : b; }
};

}  // namespace belfry::extremes
