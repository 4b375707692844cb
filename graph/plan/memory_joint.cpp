#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include <belfry/graph/plan/memory_place_internal.h>
#include <belfry/graph/plan/offsets.h>

namespace belfry {

namespace {

/// Orders that come of changing the best one, at the most.
constexpr int kMostTries = 64;

class JointPlacer {
 public:
  JointPlacer(PlacedGraph& plan, MemoryParts& parts) : plan_(plan), parts_(parts) {}

  void run(const std::vector<std::size_t>& groups) {
    std::size_t items = 0;
    for (std::size_t g : groups) items += parts_.regions[g].items.size();
    std::size_t left = kMostPairs / 2;  // large plans get fewer orders, or none
    if (items * items / 8 > left) return;
    Jointly j = jointly(groups);
    const std::vector<Piece>& pieces = j.pieces;
    const std::size_t pairs = pieces.size() * pieces.size() / 2;
    if (pairs > left / 2) return;
    set_meets(j);
    std::vector<std::int64_t> offsets, best;
    for (const Piece& p : pieces) offsets.push_back(p.item ? p.item->offset : p.block->slot.offset);
    std::int64_t had = bytes_of(j, offsets);
    std::vector<std::size_t> order(pieces.size()), best_order;
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<std::tuple<bool, double, double>> keys(pieces.size());
    std::vector<TakenBytes> taken;
    std::size_t first = 0;
    auto try_order = [&] {
      left -= pairs;
      if (best_order.empty()) best_order = order;
      const std::int64_t limit = groups.size() == 1 ? had / static_cast<std::int64_t>(plan_.groups[groups[0]].devices.size()) : kHigh;
      if (std::size_t k = fit(j, order, limit, taken, offsets); k < order.size()) return k;
      if (std::int64_t all = bytes_of(j, offsets); all < had) had = all, best = offsets, best_order = order;
      auto end = [&](std::size_t i) { return offsets[i] + pieces[i].size; };
      return static_cast<std::size_t>(std::max_element(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return end(a) < end(b); }) - order.begin());
    };
    auto by = [&](auto key) {
      if (pairs > left) return;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const auto [a, b] = key(pieces[i]);
        keys[i] = {first && pieces[i].item && pieces[i].owner != first - 1, a, b};
      }
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
      try_order();
    };
    // All groups alike, then each before the others: what suits one may be in the way of another.
    for (; first <= std::min<std::size_t>(groups.size(), 4); ++first) {
      if (groups.size() == 1 && first) break;
      by([](const Piece& p) { return std::pair(-static_cast<double>(p.size), 0.0); });
      by([](const Piece& p) { return std::pair(-static_cast<double>(p.size) * p.length(), 0.0); });
      by([](const Piece& p) { return std::pair(static_cast<double>(p.start), -static_cast<double>(p.size)); });
      by([](const Piece& p) { return std::pair(-p.length(), -static_cast<double>(p.size)); });
    }
    const std::int64_t least = least_bytes(j);
    order = best_order;
    for (int tries = kMostTries; tries-- > 0 && had > least + least / 200 && pairs <= left;) {
      const std::size_t last = try_order();  // what ends last comes earlier
      if (last == 0) break;
      const auto at = order.begin() + static_cast<std::ptrdiff_t>(last);
      std::rotate(order.begin() + static_cast<std::ptrdiff_t>(last / 2), at, at + 1);
    }
    if (!best.empty()) keep(j, best);
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
    std::vector<char> meets;                    ///< per pair of pieces
    bool meet(std::size_t i, std::size_t j) const { return meets[i * pieces.size() + j]; }
  };

  Jointly jointly(const std::vector<std::size_t>& groups) {
    Jointly out{groups, {}, {}, {}};
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

  void set_meets(Jointly& j) const {
    const std::size_t n = j.pieces.size();
    j.meets.assign(n * n, false);
    auto set = [&](std::size_t a, std::size_t b, bool meet) { j.meets[a * n + b] = j.meets[b * n + a] = meet; };
    std::vector<std::size_t> first(j.keys.size() + 1);  // per key, its first block
    std::size_t items = 0;
    while (items < n && j.pieces[items].item) ++items;
    first[0] = items;
    for (std::size_t k = 0; k < j.keys.size(); ++k) {
      first[k + 1] = first[k] + parts_.layouts.at(j.keys[k]).size();
      for (std::size_t a = first[k]; a < first[k + 1]; ++a)
        for (std::size_t b = first[k]; b < a; ++b) set(a, b, j.pieces[a].block->start <= j.pieces[b].block->until && j.pieces[b].block->start <= j.pieces[a].block->until);
    }
    std::size_t from = 0;
    for (const std::size_t g : j.groups) {
      const Region& region = parts_.regions[g];
      const Rows rows = rows_of(parts_, g);
      const std::size_t mine = own_items(region).size();
      for (std::size_t a = 0; a < mine; ++a)
        for (std::size_t b = 0; b < a; ++b) set(from + a, from + b, rows.meet(a, b));
      for (std::size_t own = 0; own < frames_on(g).size(); ++own) {
        const auto k = static_cast<std::size_t>(std::lower_bound(j.keys.begin(), j.keys.end(), frames_on(g)[own]) - j.keys.begin());
        for (std::size_t b = first[k]; b < first[k + 1]; ++b) {
          const std::size_t row = rows.block(own, b - first[k], region.over(own, b - first[k], {0, 0}));
          for (std::size_t a = 0; a < mine; ++a) set(from + a, b, rows.meet(a, row));
        }
      }
      from += mine;
    }
  }

  /// Bytes of all devices of the groups, given where a region and the frames of classes end.
  std::int64_t bytes_of(const Jointly& j, const std::vector<std::int64_t>& offsets) const {
    std::vector<std::int64_t> regions(j.groups.size()), frames(j.keys.size());
    for (std::size_t i = 0; i < j.pieces.size(); ++i) {
      const Piece& p = j.pieces[i];
      std::int64_t& end = (p.item ? regions : frames)[p.owner];
      end = std::max(end, offsets[i] + p.size);
    }
    std::int64_t out = 0;
    for (std::size_t g = 0; g < j.groups.size(); ++g) {
      std::int64_t end = regions[g];
      for (const FrameKey& k : frames_on(j.groups[g])) end = std::max(end, frames[static_cast<std::size_t>(std::lower_bound(j.keys.begin(), j.keys.end(), k) - j.keys.begin())]);
      out += end * static_cast<std::int64_t>(plan_.groups[j.groups[g]].devices.size());
    }
    return out;
  }

  /// First fit in an order. Gives the place in the order of the first piece that would not end below `limit`, else the order's size.
  static std::size_t fit(const Jointly& j, const std::vector<std::size_t>& order, std::int64_t limit, std::vector<TakenBytes>& taken, std::vector<std::int64_t>& offsets) {
    taken.clear();
    for (std::size_t k = 0; k < order.size(); ++k) {
      const std::size_t i = order[k];
      const std::int64_t size = j.pieces[i].size;
      offsets[i] = first_gap(taken, size, [&](std::size_t other) { return j.meet(i, other); });
      if (offsets[i] + size >= limit) return k;
      take(taken, {offsets[i], offsets[i] + size, i});
    }
    return order.size();
  }

  /// What is live in the frames alone at once.
  std::int64_t least_bytes(const Jointly& j) const {
    std::int64_t out = 0;
    for (std::size_t g : j.groups) {
      std::int64_t most = 0;
      for (const FrameKey& key : frames_on(g)) {
        std::vector<Block> blocks;
        for (const FrameBlock& b : parts_.layouts.at(key)) blocks.push_back({b.size, b.start, b.until});
        most = std::max(most, live_maximum(blocks));
      }
      out += most * static_cast<std::int64_t>(plan_.groups[g].devices.size());
    }
    return out;
  }

  void keep(const Jointly& j, const std::vector<std::int64_t>& offsets) {
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
};

}  // namespace

void place_jointly(PlacedGraph& plan, MemoryParts& parts, const std::vector<std::size_t>& groups) {
  JointPlacer(plan, parts).run(groups);
}

}  // namespace belfry
