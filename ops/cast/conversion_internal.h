// Conversions that C++ leaves open: reals become whole numbers towards zero, those beyond what the type holds its nearest, a NaN 0. Everywhere the same.
#pragma once

#include <concepts>
#include <limits>

namespace belfry {

template <class To, class From>
inline To converted(From x) {
  if constexpr (std::floating_point<From> && std::integral<To> && !std::same_as<To, bool>) {
    using Whole = std::numeric_limits<To>;
    constexpr From past = 2 * static_cast<From>(Whole::max() / 2 + 1);  // a power of two
    return x != x ? To{0} : x <= static_cast<From>(Whole::min()) ? Whole::min() : x >= past ? Whole::max() : static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace belfry
