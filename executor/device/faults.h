// What a kernel finds wrong with its input while it runs on a device that works by itself: told in a word that the host reads later.
#pragma once

#include <cstdint>
#include <string>

namespace belfry {

/// A word that nothing was found for.
inline constexpr std::uint64_t kNoFault = ~std::uint64_t{0};

/// What a kernel is besides whose input can be wrong (an index that is none).
class FindsFaults {
 public:
  virtual ~FindsFaults() = default;
  /// A word in the device's memory that holds kNoFault: launches from now on lower it where the input is wrong.
  virtual void watch(std::uint64_t* word) = 0;
  /// What such a word says, as the CPU's kernel does.
  virtual std::string fault(std::uint64_t word) const = 0;
};

}  // namespace belfry
