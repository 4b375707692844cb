#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/memory_rows_internal.h>

#include <algorithm>
#include <limits>
#include <map>

namespace belfry {

namespace {

constexpr int kNeverReleased = std::numeric_limits<int>::max();

/// The only stream of towers on a device; null: there are several, or none has slots that are used again.
const PlanStream* only_stream(const PlacedGraph& plan, int device) {
  const PlanStream* out = nullptr;
  for (const PlanStream& s : plan.streams) {
    if (s.device != device || s.name == "main") continue;
    if (out || s.slots < 2) return nullptr;
    out = &s;
  }
  return out;
}

}  // namespace

std::int64_t lowest_rows(const std::vector<RowObstacle>& taken, std::int64_t row, int count) {
  std::int64_t at = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (const RowObstacle& o : taken) {
      const std::int64_t low = row * (count - o.early);  // from there on the rows are in its way
      if (o.early == 0 || at + low >= o.past || at + row * count <= o.from) continue;
      at = o.past - low;
      moved = true;
    }
  }
  return at;
}

TowerRows::TowerRows(const PlacedGraph& plan, const MemoryParts& parts, std::size_t group) : plan_(plan), parts_(parts), g_(group) {
  const Region& region = parts.regions[group];
  for (int d : plan.groups[group].devices)
    if (!only_stream(plan, d)) return;
  add_members(region, true);
  if (empty() && parts.frames_on[static_cast<std::size_t>(region.device)].size() > 1) add_members(region, false);
  for (int d : plan.groups[group].devices) {
    if (empty()) break;
    towers_.push_back(towers_on(d));
    begins_.push_back(begins_on(d, towers_.back(), region));
  }
}

void TowerRows::add_members(const Region& region, bool stacks) {
  stacks_ = stacks;
  int vector = -1;
  for (std::size_t i = 0; i < region.items.size(); ++i) {
    const RegionItem& item = region.items[i];
    const PlanNode& n = plan_.nodes[item.node];
    if (item.scratch || accumulates(n) != stacks || item.over || item.written >= 0 || item.size <= item.each || (vector >= 0 && n.vector != vector)) continue;
    vector = n.vector;
    count_ = static_cast<int>(item.size / item.each);
    members_.push_back(i);
    in_row_.push_back(row_);
    row_ += item.each;
  }
}

std::vector<TowerRows::Tower> TowerRows::towers_on(int device) const {
  const PlanStream& stream = *only_stream(plan_, device);
  const std::vector<int> ranks = slot_ranks(plan_, stream);
  std::map<int, Tower> towers;  // by number
  for (std::size_t e = 0; e < stream.entries.size(); ++e) {
    const StreamEntry& entry = stream.entries[e];
    Tower& t = towers[entry.tower];
    if (t.entry_of.empty()) t.number = entry.tower, t.rank = ranks[static_cast<std::size_t>(entry.slot)], t.released = kNeverReleased;
    t.entry_of[{entry.epoch, entry.phase}] = static_cast<int>(e);
    if (entry.after >= 0) towers.at(entry.after).released = static_cast<int>(e) - 1;
  }
  for (std::size_t c = 0; c < plan_.classes.size(); ++c)
    for (int t : plan_.classes[c].towers)
      if (auto at = towers.find(t); at != towers.end()) at->second.cls = static_cast<int>(c);
  std::vector<Tower> out;
  for (auto& [number, t] : towers) out.push_back(std::move(t));
  return out;
}

std::vector<int> TowerRows::begins_on(int device, const std::vector<Tower>& towers, const Region& region) const {
  std::vector<int> out(stacks_ ? static_cast<std::size_t>(count_) : 0, kNeverReleased);
  std::vector<Accumulated> level;
  if (stacks_) level = accumulated(plan_.devices(plan_.nodes[region.items[members_[0]].node]), plan_.towers);
  for (const Tower& t : towers) {  // in the order in which parts are counted
    if (!stacks_ && parts_.last[static_cast<std::size_t>(device)][static_cast<std::size_t>(t.number)]) continue;
    int first = kNeverReleased;
    for (std::size_t i : members_) {
      const PlanNode& n = plan_.nodes[region.items[i].node];
      const auto at = t.entry_of.find({n.epoch, n.phases[static_cast<std::size_t>(t.cls)]});
      if (at != t.entry_of.end() && plan_.device_of(n, t.number) == device) first = std::min(first, at->second);
    }
    if (first == kNeverReleased) continue;
    if (!stacks_) out.push_back(first);
    else if (int& begin = out.at(static_cast<std::size_t>(level[static_cast<std::size_t>(t.number)].at)); first < begin) begin = first;
  }
  return out;
}

int TowerRows::early(std::size_t k, const FrameBlock& block, std::pair<int, int> which) {
  const FrameKey& key = parts_.frames_on[static_cast<std::size_t>(parts_.regions[g_].device)][k];
  const std::vector<int>& nodes = parts_.nodes.at(key);
  const bool ends = block.known < static_cast<std::int64_t>(nodes.size());
  auto [at, fresh] = known_.try_emplace({k, ends ? block.known : -1, which}, 0);
  if (!fresh) return at->second;
  for (std::size_t d = 0; d < towers_.size(); ++d) {
    int last = -1;
    for (const Tower& t : towers_[d]) {
      if (t.cls != key.first || (which.second >= 0 && t.rank != which.second)) continue;
      if (!ends) {
        last = std::max(last, t.released);
        continue;
      }
      const PlanNode& n = plan_.nodes[static_cast<std::size_t>(nodes[static_cast<std::size_t>(block.known)])];
      if (const auto entry = t.entry_of.find({n.epoch, n.phases[static_cast<std::size_t>(key.first)]}); entry != t.entry_of.end()) last = std::max(last, entry->second);
    }
    for (std::size_t row = 0; row < begins_[d].size(); ++row)
      if (begins_[d][row] <= last) at->second = std::max(at->second, static_cast<int>(row) + 1);
  }
  return at->second;
}

void TowerRows::set(Region& region, std::int64_t offset) const {
  for (std::size_t m = 0; m < members_.size(); ++m) {
    RegionItem& item = region.items[members_[m]];
    item.row = row_, item.in_row = in_row_[m];
    item.size = row_ * count_, item.offset = offset;
  }
}

}  // namespace belfry
