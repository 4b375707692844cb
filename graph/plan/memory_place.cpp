#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <belfry/graph/plan/memory_before_internal.h>
#include <belfry/graph/plan/memory_meets_internal.h>
#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/offsets.h>

namespace belfry {

namespace {

/// Above so many pairs of buffers they are not looked at pair by pair: the region lies behind the frames.
constexpr std::size_t kMostPairs = std::size_t{1} << 24;

/// Orders that come of changing the best one, at the most.
constexpr int kMostTries = 64;

class Placer {
 public:
  Placer(PlacedGraph& plan, MemoryParts& parts) : plan_(plan), parts_(parts) {
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      for (const FrameKey& key : frames_on(g)) groups_of_[key].push_back(g);
  }

  void run() {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) plan_.groups[g].region = around_frames(g);
    std::set<std::size_t> done;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      if (done.contains(g)) continue;
      std::vector<std::size_t> together = beside(g);
      done.insert(together.begin(), together.end());
      const bool joint = std::all_of(together.begin(), together.end(), [&](std::size_t o) { return has_one_slot(parts_.regions[o].device); });
      if (joint && (together.size() > 1 || !cannot_be_less(g))) place_jointly(together);
    }
    set_frames(plan_, parts_);
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) lay_over(g);
  }

 private:
  const std::vector<FrameKey>& frames_on(std::size_t g) const { return parts_.frames_on[static_cast<std::size_t>(parts_.regions[g].device)]; }

  bool has_one_slot(int device) const {
    int slots = 0;
    for (const PlanStream& s : plan_.streams)
      if (s.device == device && s.name != "main") slots += s.slots;
    return slots == 1;
  }

  /// Groups whose devices run towers of the same classes.
  std::vector<std::size_t> beside(std::size_t g) const {
    std::vector<std::size_t> out = {g};
    std::set<std::size_t> known = {g};
    std::set<FrameKey> keys;
    for (std::size_t k = 0; k < out.size(); ++k)
      for (const FrameKey& key : frames_on(out[k]))
        if (keys.insert(key).second)
          for (std::size_t o : groups_of_.at(key))
            if (known.insert(o).second) out.push_back(o);
    return out;
  }

  /// Items with bytes of their own: what is written over something lies where that does.
  static std::vector<std::size_t> own_items(const Region& region) {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < region.items.size(); ++i)
      if (!region.items[i].over) out.push_back(i);
    return out;
  }

  /// The items first, then the blocks of the device's frames, then those that joins write over once more.
  Rows rows_of(std::size_t g) const {
    const Region& region = parts_.regions[g];
    const std::vector<FrameKey>& keys = frames_on(g);
    Rows out;
    out.classes = std::max<std::size_t>(1, keys.size());
    std::size_t rows = region.items.size();
    for (const FrameKey& key : keys) rows += parts_.layouts.at(key).size();
    out.times.reserve(rows * out.classes);
    for (std::size_t i : own_items(region))
      for (std::size_t k = 0; k < out.classes; ++k) out.times.push_back(times_of(region.items[i], k));
    for (std::size_t own = 0; own < keys.size(); ++own) {
      out.first.push_back(out.times.size() / out.classes);
      for (const FrameBlock& b : parts_.layouts.at(keys[own]))
        for (std::size_t k = 0; k < out.classes; ++k) out.times.push_back(k == own ? times_of(b, region) : Times{});
    }
    for (std::size_t own = 0; own < region.taken.size(); ++own)
      for (auto [b, item] : region.taken[own]) {
        out.covered_blocks[{own, b}] = out.times.size() / out.classes;
        for (std::size_t k = 0; k < out.classes; ++k) {
          const Times plain = out.times[out.block(own, b, false) * out.classes + k];
          out.times.push_back(covered(plain, region.items[static_cast<std::size_t>(item)], k));
        }
      }
    return out;
  }

  /// Whether the bytes of a group with one slot are as few as can be, as they lie.
  bool cannot_be_less(std::size_t g) const {
    const Region& region = parts_.regions[g];
    const Rows rows = rows_of(g);
    std::vector<TakenBytes> bytes;
    for (std::size_t i : own_items(region)) bytes.push_back({region.items[i].offset, region.items[i].offset + region.items[i].size, bytes.size()});
    for (std::size_t k = 0; k < frames_on(g).size(); ++k) {
      const std::vector<FrameBlock>& blocks = parts_.layouts.at(frames_on(g)[k]);
      for (std::size_t b = 0; b < blocks.size(); ++b) bytes.push_back({blocks[b].slot.offset, blocks[b].slot.offset + blocks[b].size, rows.block(k, b, region.over(k, b, {0, 0}))});
    }
    std::int64_t end = 0;
    for (const TakenBytes& b : bytes) end = std::max(end, b.past);
    return Stack(rows, bytes).reaches(end);
  }

  /// First fit, the largest first, with the frames where they are. Gives the end of the last.
  std::int64_t around_frames(std::size_t g) {
    Region& region = parts_.regions[g];
    const std::vector<FrameKey>& keys = frames_on(g);
    const DeviceFrames frames = device_frames(plan_, region.device);
    const Rows rows = rows_of(g);
    std::vector<TakenBytes> taken;
    for (std::size_t k = 0; k < keys.size(); ++k) {
      const std::vector<FrameBlock>& blocks = parts_.layouts.at(keys[k]);
      for (std::size_t b = 0; b < blocks.size(); ++b)
        for (const DeviceFrames::One& f : blocks[b].slot.region == Slot::kKept ? frames.kept : frames.transient)
          if (f.classes.contains(keys[k].first)) taken.push_back({f.base + blocks[b].slot.offset, f.base + blocks[b].slot.offset + blocks[b].size, rows.block(k, b, region.over(k, b, f.which))});
    }
    const std::vector<std::size_t> own = own_items(region);
    const std::size_t pairs = own.size() * (taken.size() + own.size());
    if (pairs > kMostPairs) return behind_frames(region.items, own, frames.past);
    const bool many = pairs * plan_.groups.size() > 4 * kMostPairs;
    const std::vector<TakenBytes> of_frames = many ? taken : std::vector<TakenBytes>();
    const std::vector<char> lies = many ? before_.reuse(keys, region, own, rows, taken) : std::vector<char>(own.size());
    std::int64_t end = 0;
    auto lie = [&](std::size_t row) {
      const RegionItem& item = region.items[own[row]];
      end = std::max(end, item.offset + item.size);
      return TakenBytes{item.offset, item.offset + item.size, row};
    };
    for (std::size_t row = 0; row < own.size(); ++row)
      if (lies[row]) taken.push_back(lie(row));
    std::sort(taken.begin(), taken.end());
    std::vector<std::size_t> order(own.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return region.items[own[a]].size > region.items[own[b]].size; });
    for (std::size_t row : order) {
      if (lies[row]) continue;
      RegionItem& item = region.items[own[row]];
      item.offset = first_gap(taken, item.size, [&](std::size_t other) { return rows.meet(row, other); });
      take(taken, lie(row));
    }
    if (many) before_.keep(keys, region, own, rows, of_frames);
    return end;
  }

  static std::int64_t behind_frames(std::vector<RegionItem>& items, const std::vector<std::size_t>& own, std::int64_t frames) {
    std::vector<Block> blocks;
    for (std::size_t i : own) {
      const RegionItem& item = items[i];
      const bool main_alone = item.written >= 0 && item.last_read < kForever && std::all_of(item.read_by.begin(), item.read_by.end(), [](std::int64_t p) { return p < 0; });
      blocks.push_back({item.size, main_alone ? item.written : -1, main_alone ? item.last_read : kForever});
    }
    const Packing packed = pack(blocks);
    for (std::size_t a = 0; a < own.size(); ++a) items[own[a]].offset = frames + packed.offsets[a];
    return own.empty() ? 0 : frames + packed.peak;
  }

  /// What is written over something lies where that does.
  void lay_over(std::size_t g) const {
    Region& region = parts_.regions[g];
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < region.items.size(); ++i)
      if (region.items[i].over) order.push_back(i);
    if (order.empty()) return;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return region.items[a].written < region.items[b].written; });
    const DeviceFrames frames = device_frames(plan_, region.device);
    for (std::size_t i : order) {
      RegionItem& item = region.items[i];
      if (item.over.item >= 0) {
        item.offset = region.items[static_cast<std::size_t>(item.over.item)].offset;
        continue;
      }
      const auto k = static_cast<std::size_t>(item.over.k);
      const auto base = std::find_if(frames.kept.begin(), frames.kept.end(), [&](const DeviceFrames::One& f) { return f.which == region.host[k]; });
      item.offset = base->base + parts_.layouts.at(frames_on(g)[k])[item.over.block].slot.offset;
    }
  }

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
      const Rows rows = rows_of(g);
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

  /// First fit of frames and regions as one, in several orders, then in orders changed step by step; the smallest is kept if it is
  /// smaller than what there is.
  void place_jointly(const std::vector<std::size_t>& groups) {
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
  RegionBefore before_;
  std::map<FrameKey, std::vector<std::size_t>> groups_of_;
};

}  // namespace

void place_regions(PlacedGraph& plan, MemoryParts& parts) {
  Placer(plan, parts).run();
}

}  // namespace belfry
