// First fit of pieces, some of which may not lie over which others: what the placers of regions and frames try orders with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <belfry/graph/plan/memory_meets_internal.h>

namespace belfry {

/// What ends last comes earlier.
template <class T>
void come_earlier(std::vector<T>& order, std::size_t at) {
  const auto last = order.begin() + static_cast<std::ptrdiff_t>(at);
  std::rotate(order.begin() + static_cast<std::ptrdiff_t>(at / 2), last, last + 1);
}

/// Pieces that are placed, then some that stay where they are.
class FirstFit {
 public:
  FirstFit() = default;
  FirstFit(std::vector<std::int64_t> sizes, std::vector<std::pair<std::int64_t, std::int64_t>> fixed = {}) : sizes_(std::move(sizes)), width_(sizes_.size() + fixed.size()), meets_(sizes_.size() * width_) {
    for (auto [from, past] : fixed) fixed_.push_back({from, past, sizes_.size() + fixed_.size()});
    std::sort(fixed_.begin(), fixed_.end());
  }

  /// Looks of one order, about.
  std::size_t looks() const { return sizes_.size() * width_ / 2 + 1; }
  /// Of a piece and any other, those that stay behind the pieces.
  void set_meet(std::size_t i, std::size_t other, bool meet) {
    meets_[i * width_ + other] = meet;
    if (other < sizes_.size()) meets_[other * width_ + i] = meet;
  }
  bool meet(std::size_t i, std::size_t other) const { return meets_[i * width_ + other]; }

  void begin() { taken_ = fixed_; }
  /// The lowest place for a piece; takes it.
  std::int64_t place(std::size_t i) {
    const std::int64_t at = gap_for(i);
    take(taken_, {at, at + sizes_[i], i});
    return at;
  }
  /// Places in an order. Gives the place in the order of the first piece that would not end below `limit`, else the order's size.
  std::size_t fit(const std::vector<std::size_t>& order, std::int64_t limit, std::vector<std::int64_t>& offsets) {
    begin();
    for (std::size_t k = 0; k < order.size(); ++k) {
      offsets[order[k]] = place(order[k]);
      if (offsets[order[k]] + sizes_[order[k]] >= limit) return k;
    }
    return order.size();
  }
  /// The place in the order of what ends last.
  std::size_t last_of(const std::vector<std::size_t>& order, const std::vector<std::int64_t>& offsets) const {
    auto end = [&](std::size_t i) { return offsets[i] + sizes_[i]; };
    return static_cast<std::size_t>(std::max_element(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return end(a) < end(b); }) - order.begin());
  }

 private:
  /// As first_gap. Whether a piece meets what lies there is as good as random: without a branch on it.
  std::int64_t gap_for(std::size_t i) const {
    const char* meets = &meets_[i * width_];
    std::int64_t at = 0;
    for (const TakenBytes& t : taken_) {
      if (t.from - at >= sizes_[i]) break;
      at = std::max(at, t.past & -static_cast<std::int64_t>(meets[t.row]));
    }
    return at;
  }

  std::vector<std::int64_t> sizes_;
  std::size_t width_ = 0;
  std::vector<char> meets_;
  std::vector<TakenBytes> fixed_, taken_;
};

}  // namespace belfry
