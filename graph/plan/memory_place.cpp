#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <belfry/graph/plan/memory_before_internal.h>
#include <belfry/graph/plan/memory_meets_internal.h>
#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/memory_place_internal.h>
#include <belfry/graph/plan/offsets.h>

namespace belfry {

std::vector<std::size_t> own_items(const Region& region) {
  std::vector<std::size_t> out;
  out.reserve(region.items.size());
  for (std::size_t i = 0; i < region.items.size(); ++i)
    if (!region.items[i].over) out.push_back(i);
  return out;
}

Rows rows_of(const MemoryParts& parts, std::size_t g) {
  const Region& region = parts.regions[g];
  const std::vector<FrameKey>& keys = parts.frames_on[static_cast<std::size_t>(region.device)];
  Rows out;
  out.classes = std::max<std::size_t>(1, keys.size());
  std::size_t rows = region.items.size();
  for (const FrameKey& key : keys) rows += parts.layouts.at(key).size();
  out.times.reserve(rows * out.classes);
  for (std::size_t i : own_items(region))
    for (std::size_t k = 0; k < out.classes; ++k) out.times.push_back(times_of(region.items[i], k, region));
  for (std::size_t own = 0; own < keys.size(); ++own) {
    out.first.push_back(out.times.size() / out.classes);
    for (const FrameBlock& b : parts.layouts.at(keys[own]))
      for (std::size_t k = 0; k < out.classes; ++k) out.times.push_back(k == own ? times_of(b, region) : Times{});
  }
  for (std::size_t own = 0; own < region.taken.size(); ++own)
    for (auto [b, item] : region.taken[own]) {
      out.covered_blocks.push_back({{own, b}, out.times.size() / out.classes});
      for (std::size_t k = 0; k < out.classes; ++k) {
        const Times plain = out.times[out.block(own, b, false) * out.classes + k];
        out.times.push_back(covered(plain, region.items[static_cast<std::size_t>(item)], k));
      }
    }
  return out;
}

std::vector<FrameBytes> frame_bytes(const PlacedGraph& plan, const MemoryParts& parts, std::size_t g, const Rows& rows) {
  const Region& region = parts.regions[g];
  const std::vector<FrameKey>& keys = parts.frames_on[static_cast<std::size_t>(region.device)];
  const DeviceFrames frames = device_frames(plan, region.device);
  std::vector<FrameBytes> out;
  out.reserve(rows.times.size() / rows.classes);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const std::vector<FrameBlock>& blocks = parts.layouts.at(keys[k]);
    for (std::size_t b = 0; b < blocks.size(); ++b)
      for (const DeviceFrames::One& f : blocks[b].slot.region == Slot::kKept ? frames.kept : frames.transient) {
        if (!f.classes.contains(keys[k].first)) continue;
        const bool covered = region.over(k, b, f.which);
        const std::int64_t from = f.base + blocks[b].slot.at(static_cast<std::size_t>(std::max(0, f.which.second))).value();
        out.push_back({from, from + blocks[b].size, rows.block(k, b, covered), k, &blocks[b], f.which.second, covered});
      }
  }
  return out;
}

namespace {

class Placer {
 public:
  Placer(PlacedGraph& plan, MemoryParts& parts) : plan_(plan), parts_(parts) {
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      for (const FrameKey& key : frames_on(g)) groups_of_[key].push_back(g);
  }

  void run() {
    std::size_t apart = 64 * kMostPairs;  // for all that is placed apart: each may take its share of what is left
    auto put_apart = [&](std::size_t g, const Rows& rows) {
      const std::size_t mine = apart / (plan_.groups.size() - g);
      apart = apart - mine + place_apart(plan_, parts_, g, rows, is_alone(g), mine);
    };
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      const Rows rows = rows_of(parts_, g);
      plan_.groups[g].region = around_frames(g, rows);
      if (!has_one_slot(g)) put_apart(g, rows);
      least_.push_back(is_alone(g) && has_one_slot(g) && cannot_be_less(g, rows));
    }
    std::set<std::size_t> done;
    std::size_t left = 8 * kMostPairs;  // for all that is placed jointly
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      if (done.contains(g)) continue;
      std::vector<std::size_t> together = beside(g);
      done.insert(together.begin(), together.end());
      const bool joint = std::all_of(together.begin(), together.end(), [&](std::size_t o) { return has_one_slot(o); });
      if (joint && !least_[g]) left = left - left / 2 + place_jointly(plan_, parts_, together, left / 2);
    }
    set_frames(plan_, parts_);
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      if (has_one_slot(g) && parts_.towers_on[static_cast<std::size_t>(parts_.regions[g].device)] > 1) put_apart(g, rows_of(parts_, g));
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) lay_over(g);
  }

 private:
  const std::vector<FrameKey>& frames_on(std::size_t g) const { return parts_.frames_on[static_cast<std::size_t>(parts_.regions[g].device)]; }

  bool has_one_slot(std::size_t g) const { return parts_.has_one_slot(parts_.regions[g].device); }

  /// Whether no other group's devices run towers of its classes.
  bool is_alone(std::size_t g) const {
    return std::all_of(frames_on(g).begin(), frames_on(g).end(), [&](const FrameKey& key) { return groups_of_.at(key).size() == 1; });
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

  /// Whether the bytes of a group with one slot are as few as can be, as they lie.
  bool cannot_be_less(std::size_t g, const Rows& rows) const {
    const Region& region = parts_.regions[g];
    std::vector<TakenBytes> bytes;
    bytes.reserve(rows.times.size() / rows.classes);
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
  std::int64_t around_frames(std::size_t g, const Rows& rows) {
    Region& region = parts_.regions[g];
    const std::vector<FrameKey>& keys = frames_on(g);
    std::vector<TakenBytes> taken;
    taken.reserve(rows.times.size() / rows.classes);
    for (const FrameBytes& f : frame_bytes(plan_, parts_, g, rows)) taken.push_back({f.from, f.past, f.row});
    const std::vector<std::size_t> own = own_items(region);
    const std::size_t pairs = own.size() * (taken.size() + own.size());
    if (pairs > kMostPairs) return behind_frames(region.items, own, device_frames(plan_, region.device).past);
    const bool many = pairs * plan_.groups.size() > 4 * kMostPairs;
    const std::vector<TakenBytes> of_frames = many ? taken : std::vector<TakenBytes>();
    std::vector<char> lies = many ? before_.reuse(keys, region, own, rows, taken) : std::vector<char>(own.size());
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
        item.offset = region.items[static_cast<std::size_t>(item.over.item)].first();
        continue;
      }
      const auto k = static_cast<std::size_t>(item.over.k);
      const auto base = std::find_if(frames.kept.begin(), frames.kept.end(), [&](const DeviceFrames::One& f) { return f.which == region.host[k]; });
      item.offset = base->base + parts_.layouts.at(frames_on(g)[k])[item.over.block].slot.at(static_cast<std::size_t>(base->which.second)).value();
    }
  }

  PlacedGraph& plan_;
  MemoryParts& parts_;
  RegionBefore before_;
  std::vector<char> least_;  ///< per group: no others are beside it, and it cannot be less
  std::map<FrameKey, std::vector<std::size_t>> groups_of_;
};

}  // namespace

void place_regions(PlacedGraph& plan, MemoryParts& parts) {
  Placer(plan, parts).run();
}

}  // namespace belfry
