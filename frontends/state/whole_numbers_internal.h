// Whole numbers in widths that tensors have not: files of numpy and PyTorch hold them, and they are read as i64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace belfry {

struct WholeNumbers {
  std::string_view npy, safetensors;  ///< what the formats call them
  std::size_t bytes;
  void (*widen)(std::span<const std::byte> from, std::span<std::int64_t> to);
};

template <class T>
void widen(std::span<const std::byte> from, std::span<std::int64_t> to) {
  T value;
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::memcpy(&value, from.data() + i * sizeof value, sizeof value);
    to[i] = static_cast<std::int64_t>(value);  // NOLINT(bugprone-signed-char-misuse): an int8 is a number here
  }
}

template <class T>
constexpr WholeNumbers whole_numbers(std::string_view npy, std::string_view safetensors) { return {npy, safetensors, sizeof(T), widen<T>}; }

inline constexpr WholeNumbers kWholeNumbers[] = {whole_numbers<std::int8_t>("|i1", "I8"), whole_numbers<std::int16_t>("<i2", "I16"), whole_numbers<std::uint16_t>("<u2", "U16"),
                                                 whole_numbers<std::uint32_t>("<u4", "U32"), whole_numbers<std::uint64_t>("<u8", "U64")};

/// The first place of a number that i64 does not hold, which only unsigned ones of 8 bytes are; their count where there is none.
inline std::size_t first_too_large(const WholeNumbers& kind, std::span<const std::int64_t> widened) {
  std::size_t i = kind.safetensors == "U64" ? 0 : widened.size();
  while (i < widened.size() && widened[i] >= 0) ++i;
  return i;
}

}  // namespace belfry
