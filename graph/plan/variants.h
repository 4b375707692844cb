// What of a node differs between classes of towers or groups of devices: kernels, and where its outputs lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

/// Where an output lies. The region is the device's own (region, state), a tower's frame (kept, transient), the user's
/// feed, or nowhere.
struct Slot {
  enum Region : std::uint8_t { kNone, kState, kRegion, kKept, kTransient, kFeed };
  Region region = kNone;
  std::int64_t offset = 0;
  std::int64_t stride = 0;         ///< from one tower's or piece's buffer to the next one's; in a kept part from slot to slot, beside their distance
  std::vector<std::int64_t> more = {};  ///< or where each one after the first lies
  bool operator==(const Slot&) const = default;
  /// Where the buffer of this number lies, of those in a region; none: at no place that is given, or beyond all bytes.
  std::optional<std::int64_t> at(std::size_t number) const;
  /// One of several places: with a stride where all are equally far apart.
  static Slot of(Region region, const std::vector<std::int64_t>& places);
};
std::string to_string(Slot::Region region);
Slot::Region parse_region(std::string_view text);

/// What differs between classes of towers, or between groups of devices.
struct Variant {
  std::string kernel;
  std::int64_t scratch_bytes = 0;
  Slot scratch;
  std::vector<Slot> outputs;
  bool in_place = true;     ///< the kernel allows what the op allows; known while planning only
};

/// One per class or group. Those that say nothing take no place: of a thousand groups a node is on one or two.
class Variants {
 public:
  Variants() = default;
  Variants(std::initializer_list<Variant> all) : size_(all.size()), used_(all.size()), held_(all) {}

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  /// So many that say nothing. What was held stays in memory for those that come.
  void reset(std::size_t size);
  void resize(std::size_t size, const Variant& more = {});
  void clear() { reset(0); }

  const Variant& operator[](std::size_t i) const {
    const std::size_t at = find(i);
    return at < used_ ? held_[at] : nothing();
  }
  /// Takes a place for it if it has none.
  Variant& operator[](std::size_t i) {
    const std::size_t at = find(i);
    return at < used_ ? held_[at] : insert(i);
  }
  const Variant& front() const { return (*this)[0]; }
  const Variant& back() const { return (*this)[size_ - 1]; }
  Variant& back() { return (*this)[size_ - 1]; }

  /// Those that may say something.
  auto begin() const { return held_.begin(); }
  auto end() const { return held_.begin() + static_cast<std::ptrdiff_t>(used_); }
  auto begin() { return held_.begin(); }
  auto end() { return held_.begin() + static_cast<std::ptrdiff_t>(used_); }
  /// Calls with the number of each that may say something, and with it.
  template <class F>
  void each(F f) {
    for (std::size_t k = 0; k < used_; ++k) f(used_ == size_ ? k : static_cast<std::size_t>(places_[k]), held_[k]);
  }
  /// All of them, each with a place.
  std::vector<Variant>& whole();

 private:
  static const Variant& nothing();
  std::size_t find(std::size_t i) const;
  Variant& insert(std::size_t i);

  std::size_t size_ = 0, used_ = 0;
  std::vector<int> places_;     ///< of those that are held, ascending; none where all are
  std::vector<Variant> held_;   ///< the first `used_`; those behind them are spare
};

}  // namespace belfry
