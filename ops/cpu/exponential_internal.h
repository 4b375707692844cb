// An exponential that loops over many floats can be vectorised with.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace belfry {

/// exp(x) by additions and multiplications alone (the polynomial of Cephes), within 2 units in the last place; 0 below −87, where the
/// result would lose digits. NaN stays. Every instruction set gives the same bits.
[[gnu::always_inline]] inline float exponential(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5·2²³: adding it rounds to an integer, which is then in the low bits
  float shifted = x * 1.44269504088896341f + kShift, n = shifted - kShift;
  float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127u) << 23);
  float y = (p * (r * r) + r + 1.0f) * power;
  y = x < -87.0f ? 0.0f : y;
  return x > 88.0f ? std::numeric_limits<float>::infinity() : y;
}
inline double exponential(double x) { return std::exp(x); }

}  // namespace belfry
