// The bytes of one memory space on the host: one allocation per program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include <belfry/graph/error.h>

namespace belfry {

/// Aligned to 64 bytes and filled with a pattern that is no sensible number, so that a read of what was not written shows.
class Arena {
 public:
  /// DeviceError that names the space where there is no room.
  Arena(std::int64_t bytes, const std::string& space) : bytes_(bytes), data_(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>((bytes + 64 + 63) / 64 * 64)))) {
    if (!data_) throw DeviceError("there is no room for the " + std::to_string(bytes) + " bytes that the plan needs in the memory space '" + space + "'; take a smaller batch, or more towers one after the other");
    for (std::int64_t i = 0; i < bytes; ++i) data_.get()[i] = std::byte{0xA5};
  }
  std::byte* at(std::int64_t offset) { return data_.get() + offset; }
  const std::byte* at(std::int64_t offset) const { return data_.get() + offset; }
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::int64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace belfry
