// The bytes of one memory space: one allocation per program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include <belfry/graph/error.h>

namespace belfry {

/// What an arena is filled with: no sensible number, so that a read of what was not written shows.
inline constexpr int kArenaFill = 0xA5;

/// What to say where there is no room.
inline std::string no_room_text(std::int64_t bytes, const std::string& space) {
  return "there is no room for the " + std::to_string(bytes) + " bytes that the plan needs in the memory space '" + space + "'; take a smaller batch, or more towers one after the other";
}

class Arena {
 public:
  /// The host's memory, aligned to 64 bytes. DeviceError that names the space where there is no room.
  Arena(std::int64_t bytes, const std::string& space) : Arena(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>((bytes + 64 + 63) / 64 * 64))), bytes, [](std::byte* p) { std::free(p); }) {
    if (!data_) throw DeviceError(no_room_text(bytes, space));
    std::memset(data_.get(), kArenaFill, static_cast<std::size_t>(bytes));
  }
  /// A device's memory.
  Arena(std::byte* data, std::int64_t bytes, std::function<void(std::byte*)> free) : bytes_(bytes), data_(data, std::move(free)) {}

  std::byte* at(std::int64_t offset) { return data_.get() + offset; }
  const std::byte* at(std::int64_t offset) const { return data_.get() + offset; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_;
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data_;
};

}  // namespace belfry
