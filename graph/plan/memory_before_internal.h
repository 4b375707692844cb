// Of many regions each is much like the one before: what lay there among the same frames lies here too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <belfry/graph/plan/memory_meets_internal.h>
#include <belfry/graph/plan/memory_parts_internal.h>

namespace belfry {

class RegionBefore {
 public:
  /// Gives items the offsets that they had, where neither they nor what lies there is in use at other times; those that have one, by row.
  /// `taken`: the bytes of frames, in one order for all regions.
  std::vector<char> reuse(const std::vector<FrameKey>& keys, Region& region, const std::vector<std::size_t>& own, const Rows& rows, const std::vector<TakenBytes>& taken) const {
    std::vector<char> out(own.size());
    if (keys != keys_ || taken.size() != frames_.size()) return out;
    std::vector<TakenBytes> changed;
    for (std::size_t i = 0; i < taken.size(); ++i) {
      if (taken[i].from != frames_[i].from || taken[i].past != frames_[i].past) return out;
      if (!std::equal(frames_[i].times.begin(), frames_[i].times.end(), at(rows, taken[i].row))) changed.push_back(taken[i]);
    }
    auto known = items_.begin();
    for (std::size_t row = 0; row < own.size(); ++row) {
      RegionItem& item = region.items[own[row]];
      while (known != items_.end() && known->name < name(item)) ++known;
      if (known == items_.end()) break;
      if (known->name != name(item) || known->past - known->from != item.size || !std::equal(known->times.begin(), known->times.end(), at(rows, row))) continue;
      if (std::any_of(changed.begin(), changed.end(), [&](const TakenBytes& c) { return c.from < known->past && known->from < c.past && rows.meet(row, c.row); })) continue;
      item.offset = known->from;
      out[row] = true;
    }
    return out;
  }

  void keep(const std::vector<FrameKey>& keys, const Region& region, const std::vector<std::size_t>& own, const Rows& rows, const std::vector<TakenBytes>& frames) {
    keys_ = keys;
    frames_.clear(), items_.clear();
    auto times = [&](std::size_t row) { return std::vector<Times>(at(rows, row), at(rows, row) + static_cast<std::ptrdiff_t>(rows.classes)); };
    for (const TakenBytes& f : frames) frames_.push_back({{}, f.from, f.past, times(f.row)});
    for (std::size_t row = 0; row < own.size(); ++row)
      if (const RegionItem& item = region.items[own[row]]; true) items_.push_back({name(item), item.offset, item.offset + item.size, times(row)});
  }

 private:
  using Name = std::tuple<std::size_t, bool, std::size_t>;
  struct Known {
    Name name;
    std::int64_t from = 0, past = 0;
    std::vector<Times> times;
  };
  static Name name(const RegionItem& item) { return {item.node, item.scratch, item.output}; }
  static std::vector<Times>::const_iterator at(const Rows& rows, std::size_t row) { return rows.times.begin() + static_cast<std::ptrdiff_t>(row * rows.classes); }

  std::vector<FrameKey> keys_;
  std::vector<Known> frames_, items_;
};

}  // namespace belfry
