#include <belfry/graph/plan/memory_uses_internal.h>

#include <algorithm>
#include <limits>

#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/memory.h>

namespace belfry {

namespace {

constexpr int kNeverReleased = std::numeric_limits<int>::max();
/// Of a moment the entry of the stream is above, the position among the tower's nodes below.
constexpr std::int64_t kPositions = std::int64_t{1} << 32;

/// What overlaps or touches becomes one.
void join(Uses& uses) {
  std::sort(uses.begin(), uses.end());
  std::size_t kept = 0;
  for (std::size_t u = 1; u < uses.size(); ++u) {
    if (uses[u].first <= uses[kept].second) uses[kept].second = std::max(uses[kept].second, uses[u].second);
    else uses[++kept] = uses[u];
  }
  if (!uses.empty()) uses.resize(kept + 1);
}

}  // namespace

const PlanStream* only_stream(const PlacedGraph& plan, int device) {
  const PlanStream* out = nullptr;
  for (const PlanStream& s : plan.streams) {
    if (s.device != device || s.name == "main") continue;
    if (out || s.slots < 1) return nullptr;
    out = &s;
  }
  return out;
}

bool at_once(const Uses& x, const Uses& y) {
  if (x.size() > y.size()) return at_once(y, x);
  return std::any_of(x.begin(), x.end(), [&](const auto& a) {
    const auto b = std::partition_point(y.begin(), y.end(), [&](const auto& u) { return u.second < a.first; });
    return b != y.end() && b->first <= a.second;
  });
}

TowersInTurn::TowersInTurn(const PlacedGraph& plan, const MemoryParts& parts, std::size_t group) : plan_(plan), parts_(parts), g_(group) {
  for (int d : plan.groups[group].devices)
    if (parts.towers_on[static_cast<std::size_t>(d)] < 2 || !only_stream(plan, d)) return;
  for (int d : plan.groups[group].devices) turns_.push_back(towers_on(d));
}

std::int64_t TowersInTurn::Tower::begin(const PlanNode& n, std::int64_t position) const {
  const auto entry = entry_of.find({n.epoch, n.phases[static_cast<std::size_t>(key.first)]});
  return entry == entry_of.end() ? -1 : entry->second * kPositions + position;
}

std::int64_t TowersInTurn::Tower::end(const PlanNode& n, std::int64_t position) const {
  const std::int64_t out = begin(n, position);
  return out < 0 ? kNoEnd : out;
}

std::vector<TowersInTurn::Tower> TowersInTurn::towers_on(int device) const {
  const PlanStream& stream = *only_stream(plan_, device);
  const std::vector<int> ranks = slot_ranks(plan_, stream);
  std::map<int, Tower> towers;  // by number
  for (std::size_t e = 0; e < stream.entries.size(); ++e) {
    const StreamEntry& entry = stream.entries[e];
    Tower& t = towers[entry.tower];
    if (t.entry_of.empty()) t = {entry.tower, {}, ranks[static_cast<std::size_t>(entry.slot)], is_last_in_slot(parts_.last, entry.tower, device), kNeverReleased, {}};
    t.entry_of[{entry.epoch, entry.phase}] = static_cast<int>(e);
    if (entry.after >= 0) towers.at(entry.after).released = static_cast<int>(e) - 1;
  }
  for (std::size_t c = 0; c < plan_.classes.size(); ++c)
    for (int t : plan_.classes[c].towers)
      if (auto at = towers.find(t); at != towers.end()) at->second.key = {static_cast<int>(c), parts_.local_on(static_cast<int>(c), t, device)};
  std::vector<Tower> out;
  for (auto& [number, t] : towers) out.push_back(std::move(t));
  return out;
}

std::vector<TowerPart> TowersInTurn::parts(std::size_t item) const {
  const RegionItem& x = parts_.regions[g_].items[item];
  const PlanNode& n = plan_.nodes[x.node];
  std::vector<TowerPart> out;
  for (std::size_t k = 0; k < static_cast<std::size_t>(x.size / x.each); ++k) out.push_back({0, std::vector<Uses>(turns_.size())});
  const bool stacked = accumulates(n);
  const std::vector<Accumulated> sums = stacked ? accumulated(plan_.devices(n), plan_.towers) : std::vector<Accumulated>();
  for (std::size_t d = 0; d < turns_.size(); ++d) {
    const int device = plan_.groups[g_].devices[d];
    std::map<int, std::int64_t> taken_off;  // by tower
    std::size_t number = 0;
    for (const Tower& t : turns_[d])
      if (stacked && plan_.device_of(n, t.number) == device)
        for (int read : sums[static_cast<std::size_t>(t.number)].reads) taken_off[read] = t.end(n, position(t, x.node));
    for (const Tower& t : turns_[d]) {
      if (plan_.device_of(n, t.number) != device || (!stacked && t.last)) continue;
      TowerPart& part = out.at(stacked ? static_cast<std::size_t>(sums[static_cast<std::size_t>(t.number)].at) : number++);
      const auto end = taken_off.find(t.number);
      part.size = std::max(part.size, stacked ? x.each : aligned_bytes(local_bytes(plan_.value(n.outputs[x.output]), plan_.share(t.number))));
      part.uses[d].emplace_back(t.begin(n, position(t, x.node)), end == taken_off.end() ? kNoEnd : end->second);
    }
  }
  for (TowerPart& part : out)
    for (Uses& uses : part.uses) join(uses);
  return out;
}

std::vector<Uses> TowersInTurn::outside(const RegionItem& item) const {
  const Region& region = parts_.regions[g_];
  const std::vector<FrameKey>& keys = parts_.frames_on[static_cast<std::size_t>(region.device)];
  std::vector<Uses> out(turns_.size(), {{-1, kNoEnd}});
  if (item.written < 0) return out;
  auto at = [&](std::size_t k, std::int64_t position) -> const PlanNode& { return plan_.nodes[static_cast<std::size_t>(parts_.nodes.at(keys[k])[static_cast<std::size_t>(position)])]; };
  for (std::size_t d = 0; d < turns_.size(); ++d) {
    auto& [passed, read] = out[d].front();
    std::int64_t last = -1, told = kNoEnd;  // of towers that read it; when towers know that main streams have
    for (std::size_t k = 0; k < keys.size(); ++k) {
      const auto main = std::lower_bound(region.main_at[k].begin(), region.main_at[k].end(), item.known) - region.main_at[k].begin();
      for (const Tower& t : turns_[d]) {
        if (t.key != keys[k]) continue;
        if (item.after[k] >= 0) passed = std::max(passed, t.begin(at(k, item.after[k]), item.after[k]));
        if (item.read_by[k] >= 0) last = std::max(last, t.begin(at(k, item.read_by[k]), item.read_by[k]));
        if (main < std::ssize(region.main_at[k])) told = std::min(told, t.end(at(k, main), main));
      }
    }
    if (item.last_read >= kForever) continue;
    if (last >= 0 && item.last_read <= item.written) told = 0;
    if (told < kNoEnd) read = std::max({passed, last, told - 1});
  }
  return out;
}

const std::vector<Uses>& TowersInTurn::uses(std::size_t k, const FrameBlock& block, int rank) {
  auto [at, fresh] = known_.try_emplace({k, block.start, block.until, block.known, block.of_last, block.joined >= 0, rank});
  if (fresh)
    for (const std::vector<Tower>& towers : turns_) at->second.push_back(uses_on(towers, k, block, rank));
  return at->second;
}

Uses TowersInTurn::uses_on(const std::vector<Tower>& towers, std::size_t k, const FrameBlock& block, int rank) const {
  const FrameKey& key = parts_.frames_on[static_cast<std::size_t>(parts_.regions[g_].device)][k];
  const std::vector<int>& nodes = parts_.nodes.at(key);
  const bool ends = block.joined < 0 && block.known < static_cast<std::int64_t>(nodes.size());
  auto node = [&](std::int64_t position) -> const PlanNode& { return plan_.nodes[static_cast<std::size_t>(nodes[static_cast<std::size_t>(position)])]; };
  Uses out;
  for (const Tower& t : towers) {
    if (t.key != key || (rank >= 0 && t.rank != rank) || (block.of_last && !t.last)) continue;
    std::int64_t end = kNoEnd;
    if (ends) end = t.end(node(block.known), block.known) - (block.known > block.until);  // other devices' readers are done before it
    else if (t.released < kNeverReleased) end = t.released * kPositions + kPositions - 1;
    out.emplace_back(t.begin(node(block.start), block.start), end);
  }
  join(out);
  return out;
}

}  // namespace belfry
