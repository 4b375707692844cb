#include <belfry/frontends/files/sha256.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

namespace belfry {
namespace {

constexpr std::uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<std::uint32_t, 8>;
constexpr std::size_t kBlock = 64;

void add_block(State& state, const std::byte* block) {
  std::uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = 0;
    for (int k = 0; k < 4; ++k) w[i] = w[i] << 8 | std::to_integer<std::uint32_t>(block[4 * i + k]);
  }
  for (int i = 16; i < 64; ++i)
    w[i] = w[i - 16] + w[i - 7] + (std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3) + (std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10);
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t t = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
    const std::uint32_t u = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t, d = c, c = b, b = a, a = t + u;
  }
  const State more = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += more[i];
}

}  // namespace

std::string sha256(std::span<const std::byte> bytes) {
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::size_t at = 0;
  for (; at + kBlock <= bytes.size(); at += kBlock) add_block(state, bytes.data() + at);
  // The rest, a one bit, zeros, and the length in bits.
  std::array<std::byte, 2 * kBlock> end{};
  const std::size_t rest = bytes.size() - at, size = rest + 9 <= kBlock ? kBlock : 2 * kBlock;
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), rest, end.begin());
  end[rest] = std::byte{0x80};
  for (std::size_t i = 0; i < 8; ++i) end[size - 1 - i] = static_cast<std::byte>(std::uint64_t{bytes.size()} * 8 >> (8 * i));
  for (std::size_t i = 0; i < size; i += kBlock) add_block(state, end.data() + i);
  std::string out;
  for (std::uint32_t word : state) out += fmt::format("{:08x}", word);
  return out;
}

}  // namespace belfry
