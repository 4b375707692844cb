#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/offsets.h>

namespace belfry {

namespace {

/// Above so many pairs of buffers they are not looked at pair by pair: the region lies behind the frames.
constexpr std::size_t kMostPairs = std::size_t{1} << 24;

/// Meetings of pieces that are looked at to place frames and regions as one.
constexpr std::size_t kMostMeetings = std::size_t{1} << 23;

/// Orders that come of changing the best one, at the most.
constexpr int kMostTries = 64;

bool is_before(const RegionItem& a, const RegionItem& b) {
  if (b.written < 0 || a.last_read >= b.written) return false;
  for (std::size_t k = 0; k < a.read_by.size(); ++k)
    if (a.read_by[k] > b.after[k]) return false;
  return true;
}

bool meet(const RegionItem& a, const RegionItem& b) { return !is_before(a, b) && !is_before(b, a); }

/// A frame's block is done with before an item is written, or comes when the item is gone. `k`: its class among those of the device;
/// `over`: what joins write over it.
bool meet(const Region& region, const RegionItem& a, std::size_t k, const FrameBlock& b, const RegionItem* over) {
  if (a.written < 0) return true;
  if (over && !is_before(*over, a)) return b.start < a.gone;
  const bool read = b.joined < 0 ? b.known <= a.after[k] : b.own <= a.after[k] && region.joined_read[static_cast<std::size_t>(b.joined)] < a.written;
  return !read && b.start < a.gone;
}

class Placer {
 public:
  Placer(PlacedGraph& plan, MemoryParts& parts) : plan_(plan), parts_(parts) {}

  void run() {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) plan_.groups[g].region = around_frames(parts_.regions[g]);
    std::set<std::size_t> done;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      if (done.contains(g)) continue;
      std::vector<std::size_t> together = beside(g);
      done.insert(together.begin(), together.end());
      if (std::all_of(together.begin(), together.end(), [&](std::size_t o) { return has_one_slot(parts_.regions[o].device); })) place_jointly(together);
    }
    set_frames(plan_, parts_);
    for (Region& region : parts_.regions) lay_over(region);
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
    std::set<FrameKey> keys(frames_on(g).begin(), frames_on(g).end());
    for (bool grew = true; grew;) {
      grew = false;
      for (std::size_t o = 0; o < plan_.groups.size(); ++o) {
        if (std::find(out.begin(), out.end(), o) != out.end() || std::none_of(frames_on(o).begin(), frames_on(o).end(), [&](const FrameKey& k) { return keys.contains(k); })) continue;
        out.push_back(o);
        keys.insert(frames_on(o).begin(), frames_on(o).end());
        grew = true;
      }
    }
    return out;
  }

  /// Where frames begin on a device.
  struct Frames {
    struct One {
      std::pair<int, int> which;  ///< stream and place of the slot; a transient part's slot is -1
      std::int64_t base = 0;
    };
    std::vector<One> kept, transient;
    std::int64_t past = 0;
  };
  Frames frames_of(int device) const {
    Frames out;
    const FrameSize& frame = plan_.frames[static_cast<std::size_t>(device)];
    for (bool is_kept : {true, false}) {
      int number = 0;
      for (const PlanStream& s : plan_.streams) {
        if (s.device != device || s.name == "main") continue;
        for (int slot = 0; is_kept && slot < s.slots; ++slot) out.kept.push_back({{number, slot}, out.past + slot * frame.kept});
        if (!is_kept) out.transient.push_back({{number, -1}, out.past});
        out.past += is_kept ? s.slots * frame.kept + frame.tail : frame.transient;
        ++number;
      }
    }
    return out;
  }

  /// First fit, the largest first, with the frames where they are. Gives the end of the last.
  std::int64_t around_frames(Region& region) const {
    struct Obstacle {
      Taken taken;
      std::size_t k;
      const FrameBlock* block;
      const RegionItem* over;
    };
    std::vector<Obstacle> fixed;
    const auto& keys = parts_.frames_on[static_cast<std::size_t>(region.device)];
    const Frames frames = frames_of(region.device);
    for (std::size_t k = 0; k < keys.size(); ++k) {
      const std::vector<FrameBlock>& blocks = parts_.layouts.at(keys[k]);
      for (std::size_t b = 0; b < blocks.size(); ++b)
        for (const Frames::One& f : blocks[b].slot.region == Slot::kKept ? frames.kept : frames.transient)
          fixed.push_back({{f.base + blocks[b].slot.offset, f.base + blocks[b].slot.offset + blocks[b].size}, k, &blocks[b], region.over(k, b, f.which)});
    }
    std::vector<RegionItem>& items = region.items;
    if (items.size() * (fixed.size() + items.size()) > kMostPairs) return behind_frames(items, frames.past);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (!items[i].over) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return items[a].size > items[b].size; });
    std::int64_t end = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      RegionItem& item = items[order[i]];
      std::vector<Taken> taken;
      for (const Obstacle& o : fixed)
        if (meet(region, item, o.k, *o.block, o.over)) taken.push_back(o.taken);
      for (std::size_t j = 0; j < i; ++j)
        if (const RegionItem& other = items[order[j]]; meet(item, other)) taken.push_back({other.offset, other.offset + other.size});
      item.offset = first_gap(taken, item.size);
      end = std::max(end, item.offset + item.size);
    }
    return end;
  }

  static std::int64_t behind_frames(std::vector<RegionItem>& items, std::int64_t frames) {
    std::vector<Block> blocks;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const RegionItem& item = items[i];
      if (item.over) continue;
      which.push_back(i);
      const bool main_alone = item.written >= 0 && item.last_read < kForever && std::all_of(item.read_by.begin(), item.read_by.end(), [](std::int64_t p) { return p < 0; });
      blocks.push_back({item.size, main_alone ? item.written : -1, main_alone ? item.last_read : kForever});
    }
    const Packing packed = pack(blocks);
    for (std::size_t a = 0; a < which.size(); ++a) items[which[a]].offset = frames + packed.offsets[a];
    return which.empty() ? 0 : frames + packed.peak;
  }

  /// What is written over something lies where that does.
  void lay_over(Region& region) const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < region.items.size(); ++i)
      if (region.items[i].over) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return region.items[a].written < region.items[b].written; });
    const Frames frames = frames_of(region.device);
    const auto& keys = parts_.frames_on[static_cast<std::size_t>(region.device)];
    for (std::size_t i : order) {
      RegionItem& item = region.items[i];
      if (item.over.item >= 0) {
        item.offset = region.items[static_cast<std::size_t>(item.over.item)].offset;
        continue;
      }
      const auto k = static_cast<std::size_t>(item.over.k);
      const auto base = std::find_if(frames.kept.begin(), frames.kept.end(), [&](const Frames::One& f) { return f.which == region.host[k]; });
      item.offset = base->base + parts_.layouts.at(keys[k])[item.over.block].slot.offset;
    }
  }

  /// A frame's block of all devices that run the class, or an item of one group.
  struct Piece {
    std::size_t group = 0;
    RegionItem* item = nullptr;
    FrameKey key;
    FrameBlock* block = nullptr;
    std::int64_t size = 0, start = 0, end = 0;  ///< positions, about
    std::int64_t offset = 0;
  };

  bool meet_pieces(const Piece& a, const Piece& b) const {
    if (a.block && b.block) return a.key == b.key && a.block->start <= b.block->until && b.block->start <= a.block->until;
    if (a.item && b.item) return a.group == b.group && meet(*a.item, *b.item);
    if (a.block) return meet_pieces(b, a);
    const auto& keys = frames_on(a.group);
    const auto k = std::find(keys.begin(), keys.end(), b.key);
    if (k == keys.end()) return false;
    const Region& region = parts_.regions[a.group];
    const auto number = static_cast<std::size_t>(k - keys.begin());
    return meet(region, *a.item, number, *b.block, region.over(number, static_cast<std::size_t>(b.block - parts_.layouts.at(b.key).data()), {0, 0}));
  }

  std::vector<Piece> pieces_of(const std::vector<std::size_t>& groups) {
    std::vector<Piece> out;
    std::set<FrameKey> keys;
    for (std::size_t g : groups) {
      for (RegionItem& item : parts_.regions[g].items) {
        if (item.over) continue;
        const std::int64_t after = item.after.empty() ? -1 : *std::min_element(item.after.begin(), item.after.end());
        out.push_back({g, &item, {}, nullptr, item.size, after + 1, item.written < 0 ? kForever : item.gone, 0});
      }
      keys.insert(frames_on(g).begin(), frames_on(g).end());
    }
    for (const FrameKey& key : keys)
      for (FrameBlock& b : parts_.layouts.at(key)) out.push_back({0, nullptr, key, &b, b.size, b.start, b.until, 0});
    return out;
  }

  /// Bytes of all devices of these groups, given where a region and the frames of classes end.
  std::int64_t bytes_of(const std::vector<std::size_t>& groups, const std::vector<Piece>& pieces) const {
    std::map<std::size_t, std::int64_t> regions;
    std::map<FrameKey, std::int64_t> frames;
    for (const Piece& p : pieces) {
      std::int64_t& end = p.item ? regions[p.group] : frames[p.key];
      end = std::max(end, p.offset + p.size);
    }
    std::int64_t out = 0;
    for (std::size_t g : groups) {
      std::int64_t end = regions[g];
      for (const FrameKey& k : frames_on(g)) end = std::max(end, frames[k]);
      out += end * static_cast<std::int64_t>(plan_.groups[g].devices.size());
    }
    return out;
  }

  /// Frames and regions as one: first fit in several orders, then in orders changed step by step; the smallest is kept if it is smaller
  /// than what there is.
  void place_jointly(const std::vector<std::size_t>& groups) {
    std::vector<Piece> pieces = pieces_of(groups), best;
    const std::size_t n = pieces.size();
    if (n * n > kMostMeetings) return;
    for (Piece& p : pieces) p.offset = p.item ? p.item->offset : p.block->slot.offset;
    std::int64_t had = bytes_of(groups, pieces);
    std::vector<std::vector<int>> near(n);  // pieces that may not share bytes
    std::size_t meetings = n;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (meet_pieces(pieces[i], pieces[j])) near[i].push_back(static_cast<int>(j)), near[j].push_back(static_cast<int>(i)), meetings += 2;
    std::vector<std::size_t> order(n), best_order;
    std::vector<Taken> taken;
    std::vector<bool> placed;
    auto fit = [&] {
      placed.assign(n, false);
      for (std::size_t i : order) {
        taken.clear();
        for (int j : near[i])
          if (const Piece& p = pieces[static_cast<std::size_t>(j)]; placed[static_cast<std::size_t>(j)]) taken.push_back({p.offset, p.offset + p.size});
        pieces[i].offset = first_gap(taken, pieces[i].size);
        placed[i] = true;
      }
      const std::int64_t all = bytes_of(groups, pieces);
      if (all < had || best_order.empty()) best_order = order;
      if (all < had) had = all, best = pieces;
    };
    std::function<bool(const Piece&)> is_late;
    std::size_t left = kMostMeetings;  // large plans get fewer orders, or none
    auto by = [&](auto key) {
      if (meetings > left) return;
      left -= meetings;
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return std::pair(is_late(pieces[a]), key(pieces[a])) < std::pair(is_late(pieces[b]), key(pieces[b])); });
      fit();
    };
    auto length = [](const Piece& p) { return static_cast<double>(std::min<std::int64_t>(p.end, 1 << 20) - p.start + 1); };
    // All groups alike, then each before the others: what suits one may be in the way of another.
    for (std::size_t first = 0; first <= std::min<std::size_t>(groups.size(), 4); ++first) {
      if (groups.size() == 1 && first) break;
      is_late = [&groups, first](const Piece& p) { return first && p.item && p.group != groups[first - 1]; };
      by([](const Piece& p) { return std::pair(-static_cast<double>(p.size), 0.0); });
      by([&](const Piece& p) { return std::pair(-static_cast<double>(p.size) * length(p), 0.0); });
      by([](const Piece& p) { return std::pair(static_cast<double>(p.start), -static_cast<double>(p.size)); });
      by([&](const Piece& p) { return std::pair(-length(p), -static_cast<double>(p.size)); });
    }
    const std::int64_t least = least_bytes(groups);
    int tries = kMostTries;
    for (order = best_order; !order.empty() && had > least + least / 200 && meetings <= left && tries-- > 0; left -= meetings) {
      // What ends last comes earlier.
      auto last = std::max_element(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return pieces[a].offset + pieces[a].size < pieces[b].offset + pieces[b].size; });
      if (last == order.begin()) break;
      std::rotate(order.begin() + (last - order.begin()) / 2, last, last + 1);
      fit();
    }
    if (!best.empty()) keep(groups, best);
  }

  /// What is live in the frames alone at once.
  std::int64_t least_bytes(const std::vector<std::size_t>& groups) const {
    std::int64_t out = 0;
    for (std::size_t g : groups) {
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

  void keep(const std::vector<std::size_t>& groups, const std::vector<Piece>& best) {
    std::map<FrameKey, std::int64_t> frames;
    for (std::size_t g : groups) plan_.groups[g].region = 0;
    for (const Piece& p : best) {
      if (p.item) {
        p.item->offset = p.offset;
        plan_.groups[p.group].region = std::max(plan_.groups[p.group].region, p.offset + p.size);
      } else {
        p.block->slot = {Slot::kKept, p.offset, 0};
        frames[p.key] = std::max(frames[p.key], p.offset + p.size);
      }
    }
    for (const auto& [key, bytes] : frames) plan_.classes[static_cast<std::size_t>(key.first)].frame[static_cast<std::size_t>(key.second)] = {bytes, 0, 0};
  }

  PlacedGraph& plan_;
  MemoryParts& parts_;
};

}  // namespace

void place_regions(PlacedGraph& plan, MemoryParts& parts) {
  Placer(plan, parts).run();
}

}  // namespace belfry
