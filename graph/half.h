// Floating point numbers of 16 bits, for storage: arithmetic is done in float.
#pragma once

#include <cstdint>

namespace belfry {

/// Rounds to the nearest, ties to even; what is too large becomes infinite. `exponent` and `mantissa` are widths in bits.
std::uint16_t half_bits(double value, int exponent, int mantissa);
double value_of_half(std::uint16_t bits, int exponent, int mantissa);

template <int kExponent, int kMantissa>
struct Half {
  Half() = default;
  explicit Half(double value) : bits(half_bits(value, kExponent, kMantissa)) {}
  static Half of_bits(std::uint16_t bits) { Half h; h.bits = bits; return h; }
  operator float() const { return static_cast<float>(value_of_half(bits, kExponent, kMantissa)); }
  std::uint16_t bits = 0;
};

using Float16 = Half<5, 10>;   ///< IEEE 754 binary16
using BFloat16 = Half<8, 7>;   ///< the upper half of a float

}  // namespace belfry
