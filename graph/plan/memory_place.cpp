#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/offsets.h>

namespace belfry {

namespace {

/// Above so many pairs of buffers they are not looked at pair by pair: the region lies behind the frames.
constexpr std::size_t kMostPairs = std::size_t{1} << 24;

constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min(), kHigh = std::numeric_limits<std::int64_t>::max();

/// When bytes are in use, as the towers of one class see it. What is not said keeps nothing from being before or behind.
struct Times {
  std::int64_t last = kLow, read = kLow, gone = kLow;           ///< the end: the main stream's and the towers' last reader, from when on the tower may write over it
  std::int64_t written = kHigh, after = kHigh, start = kHigh;   ///< the begin: the main stream's step, what the towers have passed by then, their position
};

bool is_before(const Times& x, const Times& y) { return (x.last < y.written) & (x.read <= y.after) & (x.gone <= y.start); }

Times times_of(const RegionItem& item, std::size_t k) {
  Times out;
  out.last = item.last_read, out.gone = item.written < 0 ? kHigh : item.gone;
  out.written = item.written < 0 ? kLow : item.written;
  if (k < item.read_by.size()) out.read = item.read_by[k], out.after = item.after[k];
  return out;
}

Times times_of(const FrameBlock& b, const Region& region) {
  Times out;
  if (b.joined >= 0) out.last = region.joined_read[static_cast<std::size_t>(b.joined)];
  out.read = b.joined < 0 ? b.known : b.own;
  out.gone = b.until + 1, out.start = b.start;
  return out;
}

/// Items and frames' blocks of one group, a row each.
struct Rows {
  std::size_t classes = 1;
  std::vector<Times> times;  ///< row by row, per class
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
struct Taken {
  std::int64_t from = 0, past = 0;
  std::size_t row = 0;
  bool operator<(const Taken& o) const { return from < o.from; }
};

template <class Meets>
std::int64_t first_gap(const std::vector<Taken>& taken, std::int64_t size, Meets meets) {
  std::int64_t at = 0;
  for (const Taken& t : taken) {
    if (t.from - at >= size) break;
    if (t.past > at && meets(t.row)) at = t.past;
  }
  return at;
}

void take(std::vector<Taken>& taken, const Taken& t) { taken.insert(std::upper_bound(taken.begin(), taken.end(), t), t); }

/// Looks for bytes that fill all below an end without a gap and of which each meets each: then nothing can end lower.
class Stack {
 public:
  Stack(const Rows& rows, const std::vector<std::pair<std::int64_t, std::int64_t>>& bytes) : rows_(rows) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i].second) by_end_.push_back({bytes[i].first + bytes[i].second, bytes[i].second, i});
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

  /// The items first, then the blocks of the device's frames.
  Rows rows_of(std::size_t g) const {
    const Region& region = parts_.regions[g];
    const std::vector<FrameKey>& keys = frames_on(g);
    Rows out;
    out.classes = std::max<std::size_t>(1, keys.size());
    for (const RegionItem& item : region.items)
      for (std::size_t k = 0; k < out.classes; ++k) out.times.push_back(times_of(item, k));
    for (std::size_t own = 0; own < keys.size(); ++own)
      for (const FrameBlock& b : parts_.layouts.at(keys[own]))
        for (std::size_t k = 0; k < out.classes; ++k) out.times.push_back(k == own ? times_of(b, region) : Times{});
    return out;
  }

  /// Whether the group's bytes as they lie are as few as can be.
  bool cannot_be_less(std::size_t g) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> bytes;  // begin and size, in the order of the rows
    for (const RegionItem& item : parts_.regions[g].items) bytes.emplace_back(item.offset, item.size);
    for (const FrameKey& key : frames_on(g))
      for (const FrameBlock& b : parts_.layouts.at(key)) bytes.emplace_back(b.slot.offset, b.size);
    std::int64_t end = 0;
    for (auto [at, size] : bytes) end = std::max(end, at + size);
    return Stack(rows_of(g), bytes).reaches(end);
  }

  /// First fit, the largest first, with the frames where they are. Gives the end of the last.
  std::int64_t around_frames(std::size_t g) const {
    Region& region = parts_.regions[g];
    std::vector<Taken> taken;
    const FrameSize& frame = plan_.frames[static_cast<std::size_t>(region.device)];
    std::vector<std::int64_t> kept, transient;  // where frames and their transient parts begin
    std::int64_t past = 0;
    for (bool is_kept : {true, false})
      for (const PlanStream& s : plan_.streams) {
        if (s.device != region.device || s.name == "main") continue;
        for (int slot = 0; is_kept && slot < s.slots; ++slot) kept.push_back(past + slot * frame.kept);
        if (!is_kept) transient.push_back(past);
        past += is_kept ? s.slots * frame.kept + frame.tail : frame.transient;
      }
    std::vector<RegionItem>& items = region.items;
    std::size_t row = items.size();
    for (const FrameKey& key : frames_on(g))
      for (const FrameBlock& b : parts_.layouts.at(key)) {
        for (std::int64_t base : b.slot.region == Slot::kKept ? kept : transient) taken.push_back({base + b.slot.offset, base + b.slot.offset + b.size, row});
        ++row;
      }
    if (items.size() * (taken.size() + items.size()) > kMostPairs) return behind_frames(items, past);
    const Rows rows = rows_of(g);
    std::sort(taken.begin(), taken.end());
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return items[a].size > items[b].size; });
    std::int64_t end = 0;
    for (std::size_t i : order) {
      RegionItem& item = items[i];
      item.offset = first_gap(taken, item.size, [&](std::size_t other) { return rows.meet(i, other); });
      take(taken, {item.offset, item.offset + item.size, i});
      end = std::max(end, item.offset + item.size);
    }
    return end;
  }

  static std::int64_t behind_frames(std::vector<RegionItem>& items, std::int64_t frames) {
    std::vector<Block> blocks;
    for (const RegionItem& item : items) {
      const bool main_alone = item.written >= 0 && item.last_read < kForever && std::all_of(item.read_by.begin(), item.read_by.end(), [](std::int64_t p) { return p < 0; });
      blocks.push_back({item.size, main_alone ? item.written : -1, main_alone ? item.last_read : kForever});
    }
    const Packing packed = pack(blocks);
    for (std::size_t a = 0; a < items.size(); ++a) items[a].offset = frames + packed.offsets[a];
    return items.empty() ? 0 : frames + packed.peak;
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
      for (RegionItem& item : parts_.regions[groups[g]].items) {
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
    for (const std::size_t g : j.groups) items += parts_.regions[g].items.size();
    first[0] = items;
    for (std::size_t k = 0; k < j.keys.size(); ++k) {
      first[k + 1] = first[k] + parts_.layouts.at(j.keys[k]).size();
      for (std::size_t a = first[k]; a < first[k + 1]; ++a)
        for (std::size_t b = first[k]; b < a; ++b) set(a, b, j.pieces[a].block->start <= j.pieces[b].block->until && j.pieces[b].block->start <= j.pieces[a].block->until);
    }
    std::size_t from = 0;
    for (const std::size_t g : j.groups) {
      const Rows rows = rows_of(g);
      const std::size_t mine = parts_.regions[g].items.size();
      for (std::size_t a = 0; a < mine; ++a)
        for (std::size_t b = 0; b < a; ++b) set(from + a, from + b, rows.meet(a, b));
      std::size_t row = mine;
      for (const FrameKey& key : frames_on(g)) {
        const auto k = static_cast<std::size_t>(std::lower_bound(j.keys.begin(), j.keys.end(), key) - j.keys.begin());
        for (std::size_t b = first[k]; b < first[k + 1]; ++b, ++row)
          for (std::size_t a = 0; a < mine; ++a) set(from + a, b, rows.meet(a, row));
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

  /// First fit in an order; false where the end would not lie below `limit`.
  static bool fit(const Jointly& j, const std::vector<std::size_t>& order, std::int64_t limit, std::vector<Taken>& taken, std::vector<std::int64_t>& offsets) {
    taken.clear();
    for (std::size_t i : order) {
      const std::int64_t size = j.pieces[i].size;
      offsets[i] = first_gap(taken, size, [&](std::size_t other) { return j.meet(i, other); });
      if (offsets[i] + size >= limit) return false;
      take(taken, {offsets[i], offsets[i] + size, i});
    }
    return true;
  }

  /// First fit of frames and regions as one, in several orders; the smallest is kept if it is smaller than what there is.
  void place_jointly(const std::vector<std::size_t>& groups) {
    Jointly j = jointly(groups);
    const std::vector<Piece>& pieces = j.pieces;
    const std::size_t pairs = pieces.size() * pieces.size() / 2;
    std::size_t left = kMostPairs / 2;  // large plans get fewer orders, or none
    if (pairs > left) return;
    set_meets(j);
    std::vector<std::int64_t> offsets, best;
    for (const Piece& p : pieces) offsets.push_back(p.item ? p.item->offset : p.block->slot.offset);
    std::int64_t had = bytes_of(j, offsets);
    std::vector<std::size_t> order(pieces.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<std::tuple<bool, double, double>> keys(pieces.size());
    std::vector<Taken> taken;
    std::size_t first = 0;
    auto by = [&](auto key) {
      if (pairs > left) return;
      left -= pairs;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const Piece& p = pieces[i];
        const auto [a, b] = key(p);
        keys[i] = {first && p.item && p.owner != first - 1, a, b};
      }
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
      const std::int64_t limit = groups.size() == 1 ? had / static_cast<std::int64_t>(plan_.groups[groups[0]].devices.size()) : kHigh;
      if (!fit(j, order, limit, taken, offsets)) return;
      if (std::int64_t all = bytes_of(j, offsets); all < had) had = all, best = offsets;
    };
    // All groups alike, then each before the others: what suits one may be in the way of another.
    for (; first <= std::min<std::size_t>(groups.size(), 4); ++first) {
      if (groups.size() == 1 && first) break;
      by([](const Piece& p) { return std::pair(-static_cast<double>(p.size), 0.0); });
      by([](const Piece& p) { return std::pair(-static_cast<double>(p.size) * p.length(), 0.0); });
      by([](const Piece& p) { return std::pair(static_cast<double>(p.start), -static_cast<double>(p.size)); });
      by([](const Piece& p) { return std::pair(-p.length(), -static_cast<double>(p.size)); });
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
  std::map<FrameKey, std::vector<std::size_t>> groups_of_;
};

}  // namespace

void place_regions(PlacedGraph& plan, MemoryParts& parts) {
  Placer(plan, parts).run();
  set_frames(plan, parts);
}

}  // namespace belfry
