#include <belfry/graph/half.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace belfry {

std::uint16_t half_bits(double value, int exponent, int mantissa) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int bias = (1 << (exponent - 1)) - 1, infinite = ((1 << exponent) - 1) << mantissa;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinite | 1 << (mantissa - 1));
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinite);
  if (value == 0) return sign;
  // A subnormal has the exponent of the least normal number; one that rounds up carries into the exponent by itself.
  int e = std::max(std::ilogb(value), 1 - bias);
  auto steps = static_cast<std::int64_t>(std::nearbyint(std::scalbn(std::abs(value), mantissa - e)));
  std::int64_t bits = (static_cast<std::int64_t>(e + bias - 1) << mantissa) + steps;
  return static_cast<std::uint16_t>(sign | std::min<std::int64_t>(bits, infinite));
}

double value_of_half(std::uint16_t bits, int exponent, int mantissa) {
  const int bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1;
  const int e = bits >> mantissa & top, m = bits & ((1 << mantissa) - 1);
  double magnitude = e == top ? (m ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity())
                     : e      ? std::scalbn(m + (1 << mantissa), e - bias - mantissa)
                              : std::scalbn(m, 1 - bias - mantissa);
  return bits & 0x8000 ? -magnitude : magnitude;
}

}  // namespace belfry
