#include <belfry/graph/plan/memory.h>

#include <algorithm>
#include <map>
#include <numeric>

#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Values that something outside the towers reads.
std::vector<bool> joined_values(const PlacedGraph& plan) {
  std::vector<bool> out(plan.values.size());
  for (const PlanNode& n : plan.nodes)
    if (n.scope != Scope::tower)
      for (ValueIndex v : values_read(n)) out[static_cast<std::size_t>(v)] = true;
  return out;
}

bool in_region(const PlanNode& n, const std::vector<bool>& joined) {
  return n.scope != Scope::tower || std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueIndex v) { return joined[static_cast<std::size_t>(v)]; });
}

/// How many buffers of a node's values each device's region holds: one per holder, piece, or tower that leaves its slot to another.
std::map<int, int> spread(const PlacedGraph& plan, const PlanNode& n, const std::vector<std::vector<bool>>& last) {
  std::map<int, int> out;
  if (n.scope == Scope::tower) {
    for (int t = 0; t < plan.present(); ++t)
      if (int d = plan.device_of(n, t); d >= 0 && !last[static_cast<std::size_t>(d)][static_cast<std::size_t>(t)]) ++out[d];
  } else if (n.scope == Scope::device) {
    for (const Piece& p : pieces(plan.vectors[static_cast<std::size_t>(n.owners)], plan.towers)) ++out[p.device];
  } else {
    for (int d : n.holders) ++out[d];
  }
  return out;
}

}  // namespace

RegionCounts::RegionCounts(const PlacedGraph& plan, const std::vector<bool>& joined, const std::vector<std::vector<bool>>& last) : of_node_(plan.nodes.size(), -1) {
  std::map<std::tuple<Scope, int, DeviceList, int>, int> known;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    if (!in_region(n, joined)) continue;
    auto [at, fresh] = known.try_emplace({n.scope, n.scope == Scope::tower ? n.vector : -1, n.holders, n.scope == Scope::device ? n.owners : -1}, static_cast<int>(columns_.size()));
    if (fresh) columns_.push_back(spread(plan, n, last));
    of_node_[i] = at->second;
  }
}

std::vector<int> RegionCounts::row(int device) const {
  std::vector<int> out;
  for (const auto& c : columns_) {
    auto at = c.find(device);
    out.push_back(at == c.end() ? 0 : at->second);
  }
  return out;
}

int RegionCounts::count(std::size_t node, int device) const {
  if (of_node_[node] < 0) return 0;
  const auto& c = columns_[static_cast<std::size_t>(of_node_[node])];
  auto at = c.find(device);
  return at == c.end() ? 0 : at->second;
}

std::vector<int> slot_ranks(const PlanStream& stream) {
  std::vector<int> left(static_cast<std::size_t>(std::max(0, stream.slots)), -1), out(left.size());
  for (std::size_t e = 0; e < stream.entries.size(); ++e)
    if (auto s = static_cast<std::size_t>(stream.entries[e].slot); s < left.size()) left[s] = static_cast<int>(e);
  std::vector<std::size_t> order(left.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return left[a] < left[b]; });
  for (std::size_t rank = 0; rank < order.size(); ++rank) out[order[rank]] = static_cast<int>(rank);
  return out;
}

std::vector<std::vector<bool>> last_in_slots(const PlacedGraph& plan) {
  std::vector<std::vector<bool>> out(plan.cluster.devices.size(), std::vector<bool>(static_cast<std::size_t>(plan.towers)));
  for (const PlanStream& s : plan.streams) {
    std::map<int, int> last;  // slot → tower
    for (const StreamEntry& e : s.entries) last[e.slot] = e.tower;
    for (auto [slot, tower] : last)
      if (auto d = static_cast<std::size_t>(s.device), t = static_cast<std::size_t>(tower); d < out.size() && t < out[d].size()) out[d][t] = true;
  }
  return out;
}

MemoryParts::MemoryParts(const PlacedGraph& p)
    : plan(p), instances(p), readers(readers_of(p)), joined(joined_values(p)), last(last_in_slots(p)), frames_on(p.cluster.devices.size()), towers_on(p.cluster.devices.size()) {
  std::vector<bool> used(plan.vectors.size());
  for (const PlanNode& n : plan.nodes)
    if (n.scope == Scope::tower) used[static_cast<std::size_t>(n.vector)] = true;
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (int t : plan.classes[c].towers) {
      std::vector<int> seen;
      for (std::size_t x = 0; x < plan.vectors.size(); ++x) {
        const int d = plan.vectors[x][static_cast<std::size_t>(t)];
        if (!used[x] || d < 0 || std::find(seen.begin(), seen.end(), d) != seen.end()) continue;
        seen.push_back(d);
        ++towers_on[static_cast<std::size_t>(d)];
        const FrameKey key{static_cast<int>(c), plan.classes[c].pattern[x].device};
        if (auto& keys = frames_on[static_cast<std::size_t>(d)]; std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
      }
    }
}

void set_groups(PlacedGraph& plan) {
  const MemoryParts parts(plan);
  const RegionCounts counts(plan, parts.joined, parts.last);
  std::vector<std::vector<int>> frames(plan.cluster.devices.size());  // what shapes a device's frames: towers, slots, classes
  for (const PlanStream& s : plan.streams)
    if (s.name != "main") frames[static_cast<std::size_t>(s.device)].push_back(s.slots);
  for (std::size_t d = 0; d < frames.size(); ++d) {
    frames[d].push_back(-parts.towers_on[d]);
    for (auto [c, local] : parts.frames_on[d]) frames[d].insert(frames[d].end(), {c, local});
  }
  std::map<std::tuple<std::vector<int>, std::vector<int>, std::string>, std::size_t> known;
  plan.groups.clear();
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) {
    auto [at, fresh] = known.try_emplace({counts.row(static_cast<int>(d)), frames[d], plan.cluster.devices[d].kernels()}, plan.groups.size());
    if (fresh) plan.groups.emplace_back();
    plan.groups[at->second].devices.push_back(static_cast<int>(d));
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    PlanNode& n = plan.nodes[i];
    n.by_class.assign(n.scope == Scope::tower ? plan.classes.size() : 0, Variant{});
    n.by_group.assign(plan.groups.size(), Variant{});
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      if (counts.count(i, plan.groups[g].devices[0])) n.by_group[g].outputs.assign(n.outputs.size(), Slot{});
    for (std::size_t c = 0; c < n.by_class.size(); ++c)
      if (n.phases[c] >= 0) n.by_class[c].outputs.assign(n.outputs.size(), Slot{});
  }
}

/// A device's frame is the largest of the classes that use it.
void set_frames(PlacedGraph& plan, const MemoryParts& parts) {
  plan.frames.assign(plan.cluster.devices.size(), FrameSize{});
  for (std::size_t d = 0; d < plan.frames.size(); ++d)
    for (auto [c, local] : parts.frames_on[d]) {
      const FrameSize& frame = plan.classes[static_cast<std::size_t>(c)].frame[static_cast<std::size_t>(local)];
      plan.frames[d].kept = std::max(plan.frames[d].kept, frame.kept);
      plan.frames[d].transient = std::max(plan.frames[d].transient, frame.transient);
      plan.frames[d].tail = std::max(plan.frames[d].tail, frame.tail);
    }
}

void plan_memory(PlacedGraph& plan) {
  MemoryParts parts(plan);
  plan_frames(plan, parts);
  set_frames(plan, parts);
  plan_regions(plan, parts);
  set_over(plan, parts);
  place_regions(plan, parts);
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (const RegionItem& item : parts.regions[g].items) {
      Variant& variant = plan.nodes[item.node].by_group[g];
      (item.scratch ? variant.scratch : variant.outputs[item.output]) = {Slot::kRegion, item.offset, item.each};
    }
  for (const FrameOwner& o : parts.owners) {
    Variant& variant = plan.nodes[o.node].by_class[static_cast<std::size_t>(o.key.first)];
    (o.output < 0 ? variant.scratch : variant.outputs[static_cast<std::size_t>(o.output)]) = parts.layouts.at(o.key)[o.block].slot;
  }
}

std::vector<DeviceBytes> device_bytes(const PlacedGraph& plan) {
  std::vector<DeviceBytes> out(plan.cluster.devices.size());
  for (const PlanStream& s : plan.streams) {
    auto d = static_cast<std::size_t>(s.device);
    if (s.name == "main" || d >= std::min(out.size(), plan.frames.size())) continue;
    out[d].kept += s.slots * plan.frames[d].kept + plan.frames[d].tail;
    out[d].transient += plan.frames[d].transient;
  }
  for (const DeviceGroup& g : plan.groups)
    for (int device : g.devices)
      if (auto d = static_cast<std::size_t>(device); d < out.size()) out[d].state = g.state, out[d].region = std::max<std::int64_t>(0, g.region - out[d].kept - out[d].transient);
  return out;
}

}  // namespace belfry
