// Philox4x32-10 (Salmon et al. 2011): random words as a function of key and counter.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace belfry {

using Words = std::array<std::uint32_t, 4>;

inline Words philox(std::uint64_t seed, Words c) {
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    std::uint64_t p = std::uint64_t{0xD2511F53} * c[0], q = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(q >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(q), static_cast<std::uint32_t>(p >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

/// In [0, 1) with 24 bits.
inline float uniform_of(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// Words (0, 1) make normals 0 and 1, words (2, 3) make 2 and 3.
inline double normal_of(const std::uint32_t words[4], int word) {
  int pair = word & 2;
  double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(uniform_of(words[pair])))), turn = 2 * std::numbers::pi * static_cast<double>(uniform_of(words[pair + 1]));
  return radius * (word & 1 ? std::sin(turn) : std::cos(turn));
}

}  // namespace belfry
