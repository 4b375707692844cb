#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>

#include <belfry/graph/plan/memory_first_fit_internal.h>
#include <belfry/graph/plan/memory_place_internal.h>

namespace belfry {

namespace {

/// Orders that come of changing the best one, at the most: what ends last comes earlier; two of the largest change places.
constexpr int kMostTries = 64, kMostSwaps = 2000;
/// Pairs of pieces that all swaps may look at.
constexpr std::size_t kMostSwapPairs = 4'000'000;
constexpr std::size_t kMostSwapped = 200;
/// Fewer bytes are not worth it.
constexpr std::int64_t kLeastSwapped = 1 << 20;
constexpr int kSorts = 4;
/// Moments at which what is in use at once is looked at.
constexpr std::size_t kMostMoments = 8;

class JointPlacer {
 public:
  JointPlacer(PlacedGraph& plan, MemoryParts& parts, std::size_t left) : plan_(plan), parts_(parts), left_(left) {}

  /// Gives how many pairs it may still have looked at.
  std::size_t run(const std::vector<std::size_t>& groups) {
    std::size_t items = 0;
    for (std::size_t g : groups) items += parts_.regions[g].items.size();
    if (items * items / 8 > left_) return left_;
    j_ = jointly(groups);
    const std::vector<Piece>& pieces = j_.pieces;
    pairs_ = pieces.size() * pieces.size() / 2;
    if (pairs_ > left_ / 4) return left_;
    std::vector<std::int64_t> sizes;
    for (const Piece& p : pieces) sizes.push_back(p.size);
    fit_ = FirstFit(std::move(sizes));
    set_meets();
    for (const Piece& p : pieces) offsets_.push_back(p.item ? p.item->offset : p.block->slot.offset);
    had_ = bytes_of(offsets_);
    const bool many = pairs_ > kMostPairs / 4;  // then the largest decide, in one order
    if (!many) try_sorted();
    least_ = least_bytes();
    swap_largest(many ? 0 : kMostSwaps);
    if (!many) move_last();
    if (!best_.empty()) keep();
    return left_;
  }

 private:
  const std::vector<FrameKey>& frames_on(std::size_t g) const { return parts_.frames_on[static_cast<std::size_t>(parts_.regions[g].device)]; }

  /// Frames' blocks, each of all devices that run its class, and items of groups: placed as one.
  struct Piece {
    RegionItem* item = nullptr;
    FrameBlock* block = nullptr;
    std::size_t owner = 0;                      ///< of an item its group, of a block its frame: places in lists
    std::int64_t size = 0, start = 0, end = 0;  ///< positions, about
    double length() const { return static_cast<double>(std::min<std::int64_t>(end, 1 << 20) - start + 1); }
  };
  struct Jointly {
    std::vector<std::size_t> groups;
    std::vector<FrameKey> keys;
    std::vector<Piece> pieces;
  };

  /// Where regions and the frames of classes end.
  struct Ends {
    std::vector<std::int64_t> regions, frames;
    bool add(const Piece& p, std::int64_t offset) {  // says whether one grew
      std::int64_t& end = (p.item ? regions : frames)[p.owner];
      const bool grows = offset + p.size > end;
      if (grows) end = offset + p.size;
      return grows;
    }
  };
  Ends no_ends() const { return {std::vector<std::int64_t>(j_.groups.size()), std::vector<std::int64_t>(j_.keys.size())}; }

  bool is_enough() const { return had_ <= least_ + least_ / 200; }

  /// First fit in this order; gives the place in it of what ends last.
  std::size_t try_order(const std::vector<std::size_t>& order) {
    left_ -= pairs_;
    if (best_order_.empty()) best_order_ = order;
    const std::int64_t limit = j_.groups.size() == 1 ? had_ / static_cast<std::int64_t>(plan_.groups[j_.groups[0]].devices.size()) : kHigh;
    if (const std::size_t k = fit_.fit(order, limit, offsets_); k < order.size()) return k;
    if (const std::int64_t all = bytes_of(offsets_); all < had_) had_ = all, best_ = offsets_, best_order_ = order;
    return fit_.last_of(order, offsets_);
  }

  /// By size, bytes times time, begin or time; all groups alike, or the items of one (from 1 on) before those of others.
  void sort(std::vector<std::size_t>& order, int key, std::size_t first) const {
    std::vector<std::tuple<bool, double, double>> keys(j_.pieces.size());
    for (std::size_t i : order) {
      const Piece& p = j_.pieces[i];
      const double size = -static_cast<double>(p.size), start = static_cast<double>(p.start);
      const bool later = first && p.item && p.owner != first - 1;
      keys[i] = key == 0 ? std::tuple(later, size, 0.0) : key == 1 ? std::tuple(later, size * p.length(), 0.0) : key == 2 ? std::tuple(later, start, size) : std::tuple(later, -p.length(), size);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  }

  /// All groups alike, then each before the others: what suits one may be in the way of another.
  void try_sorted() {
    std::vector<std::size_t> order(j_.pieces.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::size_t most = j_.groups.size() == 1 ? 0 : std::min<std::size_t>(j_.groups.size(), 4);
    for (std::size_t first = 0; first <= most; ++first)
      for (int key = 0; key < kSorts && pairs_ <= left_; ++key) {
        sort(order, key, first);
        try_order(order);
      }
  }

  /// The largest alone, in the best order with two of them in each other's place where that is not more; then the rest by size.
  void swap_largest(int swaps) {
    if (is_enough() || had_ < kLeastSwapped) return;
    std::vector<std::size_t> by_size(j_.pieces.size()), large;
    std::iota(by_size.begin(), by_size.end(), std::size_t{0});
    std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) { return j_.pieces[a].size > j_.pieces[b].size; });
    const std::size_t count = std::min(by_size.size(), kMostSwapped), each = count * count / 2;
    if (left_ < 2 * pairs_ || count < 2) return;
    swaps = std::min(swaps, static_cast<int>(kMostSwapPairs / each));
    std::vector<bool> is_large(by_size.size());
    for (std::size_t k = 0; k < count; ++k) is_large[by_size[k]] = true;
    const std::vector<std::size_t>& start = best_order_.empty() ? by_size : best_order_;
    std::copy_if(start.begin(), start.end(), std::back_inserter(large), [&](std::size_t i) { return is_large[i]; });
    std::int64_t now = fit_within(large, kHigh);
    for (int key = 0; key < kSorts; ++key) {
      std::vector<std::size_t> other = large;
      sort(other, key, 0);
      if (const std::int64_t all = fit_within(other, now - 1); all < now) now = all, large = std::move(other);
    }
    std::minstd_rand random;  // the same everywhere
    for (; swaps-- > 0 && left_ >= 2 * pairs_ + each; left_ -= each) {
      std::size_t &a = large[random() % count], &b = large[random() % count];
      std::swap(a, b);
      if (const std::int64_t other = fit_within(large, now); other <= now) now = other;
      else std::swap(a, b);
    }
    for (const bool frames_first : {false, true}) {
      std::vector<std::size_t> order = large;
      auto rest = [&](auto wanted) { std::copy_if(by_size.begin(), by_size.end(), std::back_inserter(order), [&](std::size_t i) { return !is_large[i] && wanted(j_.pieces[i]); }); };
      if (frames_first) rest([](const Piece& p) { return p.block != nullptr; }), rest([](const Piece& p) { return p.item != nullptr; });
      else rest([](const Piece&) { return true; });
      try_order(order);
      if (j_.groups.size() == 1) break;
    }
  }

  void move_last() {
    std::vector<std::size_t> order = best_order_;
    for (int tries = kMostTries; tries-- > 0 && !is_enough() && pairs_ <= left_;) {
      const std::size_t last = try_order(order);
      if (last == 0) break;
      come_earlier(order, last);
    }
  }

  Jointly jointly(const std::vector<std::size_t>& groups) {
    Jointly out{groups, {}, {}};
    for (std::size_t g = 0; g < groups.size(); ++g) {
      Region& region = parts_.regions[groups[g]];
      for (std::size_t i : own_items(region)) {
        RegionItem& item = region.items[i];
        const std::int64_t after = item.after.empty() ? -1 : *std::min_element(item.after.begin(), item.after.end());
        out.pieces.push_back({&item, nullptr, g, item.size, after + 1, item.written < 0 ? kForever : item.gone});
      }
      out.keys.insert(out.keys.end(), frames_on(groups[g]).begin(), frames_on(groups[g]).end());
    }
    std::sort(out.keys.begin(), out.keys.end());
    out.keys.erase(std::unique(out.keys.begin(), out.keys.end()), out.keys.end());
    for (std::size_t k = 0; k < out.keys.size(); ++k)
      for (FrameBlock& b : parts_.layouts.at(out.keys[k])) out.pieces.push_back({nullptr, &b, k, b.size, b.start, b.until});
    return out;
  }

  void set_meets() {
    const Jointly& j = j_;
    const std::size_t n = j.pieces.size();
    std::vector<std::size_t> first(j.keys.size() + 1);  // per key, its first block
    std::size_t items = 0;
    while (items < n && j.pieces[items].item) ++items;
    first[0] = items;
    for (std::size_t k = 0; k < j.keys.size(); ++k) {
      first[k + 1] = first[k] + parts_.layouts.at(j.keys[k]).size();
      for (std::size_t a = first[k]; a < first[k + 1]; ++a)
        for (std::size_t b = first[k]; b < a; ++b) fit_.set_meet(a, b, j.pieces[a].block->start <= j.pieces[b].block->until && j.pieces[b].block->start <= j.pieces[a].block->until);
    }
    std::size_t from = 0;
    for (const std::size_t g : j.groups) {
      const Region& region = parts_.regions[g];
      const Rows rows = rows_of(parts_, g);
      const std::size_t mine = own_items(region).size();
      for (std::size_t a = 0; a < mine; ++a)
        for (std::size_t b = 0; b < a; ++b) fit_.set_meet(from + a, from + b, rows.meet(a, b));
      for (std::size_t own = 0; own < frames_on(g).size(); ++own) {
        const auto k = static_cast<std::size_t>(std::lower_bound(j.keys.begin(), j.keys.end(), frames_on(g)[own]) - j.keys.begin());
        for (std::size_t b = first[k]; b < first[k + 1]; ++b) {
          const std::size_t row = rows.block(own, b - first[k], region.over(own, b - first[k], {0, 0}));
          for (std::size_t a = 0; a < mine; ++a) fit_.set_meet(from + a, b, rows.meet(a, row));
        }
      }
      from += mine;
    }
  }

  /// Bytes of all devices of the groups.
  std::int64_t bytes_of(const std::vector<std::int64_t>& offsets) const {
    Ends ends = no_ends();
    for (std::size_t i = 0; i < j_.pieces.size(); ++i) ends.add(j_.pieces[i], offsets[i]);
    return bytes_of(ends);
  }

  std::int64_t bytes_of(const Ends& ends) const {
    std::int64_t out = 0;
    for (std::size_t g = 0; g < j_.groups.size(); ++g) {
      std::int64_t end = ends.regions[g];
      for (const FrameKey& k : frames_on(j_.groups[g])) end = std::max(end, ends.frames[static_cast<std::size_t>(std::lower_bound(j_.keys.begin(), j_.keys.end(), k) - j_.keys.begin())]);
      out += end * static_cast<std::int64_t>(plan_.groups[j_.groups[g]].devices.size());
    }
    return out;
  }

  /// First fit in an order of some pieces: bytes of them alone, or the first sum above `most` that it comes to.
  std::int64_t fit_within(const std::vector<std::size_t>& order, std::int64_t most) {
    fit_.begin();
    Ends ends = no_ends();
    std::int64_t all = 0;
    for (std::size_t i : order) {
      if (ends.add(j_.pieces[i], fit_.place(i)) && (all = bytes_of(ends)) > most) break;
    }
    return all;
  }

  /// Bytes of what is in use at once: no layout takes less.
  std::int64_t least_bytes() const {
    std::int64_t out = 0;
    for (std::size_t g = 0; g < j_.groups.size(); ++g) {
      std::int64_t most = 0;
      for (const FrameKey& key : frames_on(j_.groups[g])) most = std::max(most, in_use(g, static_cast<std::size_t>(std::lower_bound(j_.keys.begin(), j_.keys.end(), key) - j_.keys.begin())));
      out += most * static_cast<std::int64_t>(plan_.groups[j_.groups[g]].devices.size());
    }
    return out;
  }

  /// Of a group's items and one frame: at some of the fullest moments, the largest first, those of which each meets each.
  std::int64_t in_use(std::size_t group, std::size_t key) const {
    std::vector<std::size_t> mine;
    std::map<std::int64_t, std::int64_t> change;
    for (std::size_t i = 0; i < j_.pieces.size(); ++i) {
      const Piece& p = j_.pieces[i];
      if (p.owner != (p.item ? group : key)) continue;
      mine.push_back(i);
      change[p.start] += p.size, change[p.end + 1] -= p.size;
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> moments;  // bytes, when
    std::int64_t now = 0;
    for (auto [at, by] : change) moments.emplace_back(-(now += by), at);
    std::partial_sort(moments.begin(), moments.begin() + static_cast<std::ptrdiff_t>(std::min(moments.size(), kMostMoments)), moments.end());
    moments.resize(std::min(moments.size(), kMostMoments));
    std::stable_sort(mine.begin(), mine.end(), [&](std::size_t a, std::size_t b) { return j_.pieces[a].size > j_.pieces[b].size; });
    std::int64_t out = 0;
    for (auto [bytes, at] : moments) {
      std::vector<std::size_t> taken;
      std::int64_t sum = 0;
      for (std::size_t i : mine) {
        const Piece& p = j_.pieces[i];
        if (p.start > at || p.end < at || !std::all_of(taken.begin(), taken.end(), [&](std::size_t other) { return fit_.meet(i, other); })) continue;
        taken.push_back(i), sum += p.size;
      }
      out = std::max(out, sum);
    }
    return out;
  }

  void keep() {
    const Jointly& j = j_;
    const std::vector<std::int64_t>& offsets = best_;
    std::vector<std::int64_t> frames(j.keys.size());
    for (std::size_t g : j.groups) plan_.groups[g].region = 0;
    for (std::size_t i = 0; i < j.pieces.size(); ++i) {
      const Piece& p = j.pieces[i];
      if (p.item) {
        std::int64_t& region = plan_.groups[j.groups[p.owner]].region;
        p.item->offset = offsets[i];
        region = std::max(region, offsets[i] + p.size);
      } else {
        p.block->slot = {Slot::kKept, offsets[i], 0};
        frames[p.owner] = std::max(frames[p.owner], offsets[i] + p.size);
      }
    }
    for (std::size_t k = 0; k < frames.size(); ++k)
      if (!parts_.layouts.at(j.keys[k]).empty()) plan_.classes[static_cast<std::size_t>(j.keys[k].first)].frame[static_cast<std::size_t>(j.keys[k].second)] = {frames[k], 0, 0};
  }

  PlacedGraph& plan_;
  MemoryParts& parts_;
  std::size_t left_, pairs_ = 0;  ///< pairs of pieces that may still be looked at, those of one order
  Jointly j_;
  std::int64_t had_ = 0, least_ = 0;
  std::vector<std::int64_t> offsets_, best_;
  std::vector<std::size_t> best_order_;
  FirstFit fit_;
};

}  // namespace

std::size_t place_jointly(PlacedGraph& plan, MemoryParts& parts, const std::vector<std::size_t>& groups, std::size_t pairs) {
  return JointPlacer(plan, parts, pairs).run(groups);
}

}  // namespace belfry
