// Where an element of a padded axis comes from: the op and its kernels share it.
#pragma once

#include <cstdint>
#include <string>

namespace belfry {

enum class PadMode : std::uint8_t { constant, reflect, symmetric };
inline PadMode pad_mode(const std::string& text) { return text == "constant" ? PadMode::constant : text == "reflect" ? PadMode::reflect : PadMode::symmetric; }

/// The element of an axis of `size` that stands at `i` of the padded one; -1 where the value stands.
inline std::int64_t unpadded(std::int64_t i, std::int64_t before, std::int64_t size, PadMode mode) {
  std::int64_t k = i - before, repeated = mode == PadMode::symmetric;
  if (k >= 0 && k < size) return k;
  if (mode == PadMode::constant) return -1;
  return k < 0 ? -k - repeated : 2 * (size - 1) + repeated - k;
}

}  // namespace belfry
