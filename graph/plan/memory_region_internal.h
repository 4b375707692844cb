// Buffers outside the frames of towers while memory is planned: when they are in use, what they are written over.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace belfry {

inline constexpr std::int64_t kForever = std::int64_t{1} << 40;

/// A number per class of a region: of nearly all there is one.
class Positions {
 public:
  void assign(std::size_t size, std::int64_t value) {
    size_ = size, one_ = value;
    if (size > 1) more_.assign(size, value);
  }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t* begin() { return size_ > 1 ? more_.data() : &one_; }
  std::int64_t* end() { return begin() + size_; }
  const std::int64_t* begin() const { return size_ > 1 ? more_.data() : &one_; }
  const std::int64_t* end() const { return begin() + size_; }
  std::int64_t& operator[](std::size_t k) { return begin()[k]; }
  std::int64_t operator[](std::size_t k) const { return begin()[k]; }

 private:
  std::size_t size_ = 0;
  std::int64_t one_ = 0;
  std::vector<std::int64_t> more_;
};

/// What is written over: a part in a frame (`k`: its class among those of the device), or an item of the same region.
struct Over {
  int item = -1, k = -1;
  std::size_t block = 0;
  explicit operator bool() const { return item >= 0 || k >= 0; }
};

/// A buffer outside the frames: of the main stream's step `written`, or a part that towers make for a join (`written` < 0).
struct RegionItem {
  std::size_t node = 0, output = 0;
  bool scratch = false;
  std::int64_t each = 0, size = 0;     ///< bytes of one buffer and of all that lie side by side
  std::int64_t written = -1;           ///< order of the step of the main stream
  std::int64_t last_read = -1;         ///< order of the last step of the main stream that reads it; kForever: others may read it at any time
  std::int64_t known = -1;             ///< order of the step of the main stream that knows, as it runs, that no step of any main stream reads it any more
  std::int64_t held = -1;              ///< order of the last step of the main stream that may be one launch with a reader: until then other bytes would keep these from being one
  Positions read_by;                   ///< per class here, the last position at which a tower reads it
  Positions after;                     ///< per class here, what all towers have passed when it is written
  std::int64_t gone = kForever;        ///< the position from which on the last of towers that take turns in one frame may write over it
  Over over;                           ///< what it lies over; its life is then part of what lies there first
  std::int64_t offset = 0;
  std::vector<std::int64_t> places;    ///< of buffers that lie apart, for each; none: side by side
  std::int64_t first() const { return places.empty() ? offset : places[0]; }  ///< where the first buffer lies
};

/// Numbers of some values: a region knows a few of thousands.
class JoinedReads {
 public:
  void set(std::vector<std::pair<std::size_t, std::int64_t>> reads);
  std::int64_t operator[](std::size_t value) const;

 private:
  std::vector<std::pair<std::size_t, std::int64_t>> reads_;  // by value
};

/// What lies outside the frames of a group's devices.
struct Region {
  int device = 0;                        ///< the first of the group
  bool alone = false;                    ///< a single tower runs here
  std::vector<RegionItem> items;
  std::vector<std::vector<std::int64_t>> main_at;  ///< per class here and position of its towers, how far the main stream has come: an order; empty where several streams have towers
  JoinedReads joined_read;               ///< order of the last step of this main stream that reads a value of a frame here, if none elsewhere does, else kForever
  std::vector<std::pair<int, int>> host;           ///< per class here, the stream (of those with towers) and the place of the slot in whose frame joins may write; -1: none
  std::vector<std::vector<std::pair<std::size_t, int>>> taken;   ///< per class here, blocks, ascending, each with the item that is written over it first

  /// What joins write over a block of the frame that begins at this place of a stream; null: nothing does.
  const RegionItem* over(std::size_t k, std::size_t block, std::pair<int, int> frame) const {
    if (k >= host.size() || host[k] != frame) return nullptr;
    const auto at = std::lower_bound(taken[k].begin(), taken[k].end(), std::pair(block, 0));
    return at == taken[k].end() || at->first != block ? nullptr : &items[static_cast<std::size_t>(at->second)];
  }
};

}  // namespace belfry
