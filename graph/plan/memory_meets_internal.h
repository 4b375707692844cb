// Which bytes may not lie over which while memory is placed: when each is in use, and first fit among those that meet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <belfry/graph/plan/memory_parts_internal.h>

namespace belfry {

inline constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min(), kHigh = std::numeric_limits<std::int64_t>::max();

/// When bytes are in use, as the towers of one class see it. What is not said keeps nothing from being before or behind.
struct Times {
  std::int64_t last = kLow, read = kLow, gone = kLow;           ///< the end: the main stream's and the towers' last reader, from when on the tower may write over it
  std::int64_t written = kHigh, after = kHigh, start = kHigh;   ///< the begin: the main stream's step, what the towers have passed by then, their position
  std::int64_t done = kHigh, late = kLow;                       ///< `gone` and `start` of the last of towers in turn, where it alone writes
  bool operator==(const Times&) const = default;
};

inline bool is_before(const Times& x, const Times& y) { return (x.last < y.written) & (x.read <= y.after) & ((x.gone <= y.start) | (x.done <= y.late)); }

inline Times times_of(const RegionItem& item, std::size_t k, const Region& region) {
  Times out;
  out.last = item.last_read, out.written = item.written < 0 ? kLow : item.written;
  out.done = item.written < 0 ? kHigh : item.gone, out.gone = region.alone ? out.done : kHigh;
  if (k < item.read_by.size()) out.read = item.read_by[k], out.after = item.after[k];
  return out;
}

inline Times times_of(const FrameBlock& b, const Region& region) {
  Times out;
  if (b.joined >= 0) out.last = region.joined_read[static_cast<std::size_t>(b.joined)];
  out.read = b.joined < 0 ? b.known : b.own;
  out.gone = b.until + 1, out.start = b.start, out.late = b.of_last ? b.start : kLow;
  return out;
}

/// Of a block that a join writes over, to a class: the result must be done with too.
inline Times covered(Times block, const RegionItem& over, std::size_t k) {
  block.last = std::max(block.last, over.last_read);
  if (k < over.read_by.size()) block.read = std::max(block.read, over.read_by[k]);
  return block;
}

/// Items with bytes of their own and frames' blocks of one group, a row each.
struct Rows {
  std::size_t classes = 1;
  std::vector<Times> times;                                                   ///< row by row, per class
  std::vector<std::size_t> first;                                             ///< per class, the row of its first block
  using Covered = std::pair<std::pair<std::size_t, std::size_t>, std::size_t>;
  std::vector<Covered> covered_blocks;                                        ///< by class and block, its row where a join writes over it
  std::size_t block(std::size_t k, std::size_t b, bool is_covered) const {
    return is_covered ? std::lower_bound(covered_blocks.begin(), covered_blocks.end(), Covered{{k, b}, 0})->second : first[k] + b;
  }
  bool meet(std::size_t i, std::size_t j) const {
    bool before = true, behind = true;
    for (std::size_t k = 0; k < classes; ++k) {
      const Times &x = times[i * classes + k], &y = times[j * classes + k];
      before &= is_before(x, y), behind &= is_before(y, x);
    }
    return !before && !behind;
  }
};

/// Bytes that have a place, in a list by their begin.
struct TakenBytes {
  std::int64_t from = 0, past = 0;
  std::size_t row = 0;
  bool operator<(const TakenBytes& o) const { return from < o.from; }
};

template <class Meets>
std::int64_t first_gap(const std::vector<TakenBytes>& taken, std::int64_t size, Meets meets) {
  std::int64_t at = 0;
  for (const TakenBytes& t : taken) {
    if (t.from - at >= size) break;
    if (t.past > at && meets(t.row)) at = t.past;
  }
  return at;
}

inline void take(std::vector<TakenBytes>& taken, const TakenBytes& t) { taken.insert(std::upper_bound(taken.begin(), taken.end(), t), t); }

/// Looks for bytes that fill all below an end without a gap and of which each meets each: then nothing can end lower.
class Stack {
 public:
  Stack(const Rows& rows, const std::vector<TakenBytes>& bytes) : rows_(rows) {
    for (const TakenBytes& b : bytes)
      if (b.past > b.from) by_end_.push_back({b.past, b.past - b.from, b.row});
    std::sort(by_end_.begin(), by_end_.end(), [](const Held& a, const Held& b) { return a.end < b.end; });
  }
  /// In few steps, or not at all.
  bool reaches(std::int64_t end) {
    if (end == 0) return true;
    for (auto h = std::lower_bound(by_end_.begin(), by_end_.end(), end, [](const Held& a, std::int64_t e) { return a.end < e; }); h != by_end_.end() && h->end == end && steps_-- > 0; ++h) {
      if (!std::all_of(above_.begin(), above_.end(), [&](std::size_t other) { return rows_.meet(h->row, other); })) continue;
      above_.push_back(h->row);
      if (reaches(end - h->size)) return true;
      above_.pop_back();
    }
    return false;
  }

 private:
  struct Held {
    std::int64_t end, size;
    std::size_t row;
  };
  const Rows& rows_;
  std::vector<Held> by_end_;
  std::vector<std::size_t> above_;
  int steps_ = 1000;
};

}  // namespace belfry
