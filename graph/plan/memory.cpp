#include <belfry/graph/plan/memory.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/landing.h>
#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/plan/small_steps.h>
#include <belfry/graph/plan/stream_frames.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Values that something outside the towers reads.
std::vector<bool> joined_values(const PlacedGraph& plan) {
  std::vector<bool> out(plan.values.size());
  for (const PlanNode& n : plan.nodes)
    if (n.scope != Scope::tower)
      for_values_read(n, [&](ValueIndex v) { out[static_cast<std::size_t>(v)] = true; });
  return out;
}

bool in_region(const PlanNode& n, const std::vector<bool>& joined) {
  return n.scope != Scope::tower || std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueIndex v) { return joined[static_cast<std::size_t>(v)]; });
}

/// How many buffers of a node's values each device's region holds: one per holder, piece, or tower that leaves its slot to another; a stack's depth.
std::map<int, int> spread(const PlacedGraph& plan, const PlanNode& n, const std::vector<std::vector<bool>>& last) {
  std::map<int, int> out;
  if (accumulates(n)) {
    const std::vector<int> depths = stack_depths(plan.devices(n), plan.towers, plan.cluster.devices.size());
    for (std::size_t d = 0; d < depths.size(); ++d)
      if (depths[d]) out[static_cast<int>(d)] = depths[d];
  } else if (n.scope == Scope::tower) {
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
  std::vector<int> of_vector(plan.vectors.size(), -1), of_owners(plan.vectors.size(), -1), of_stack(plan.vectors.size(), -1);
  std::map<DeviceList, int> of_holders;
  const DeviceList* holders = nullptr;  // neighbours often lie alike
  int mine = -1;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    if (!in_region(n, joined)) continue;
    if (n.scope != Scope::tower && n.scope != Scope::device && !(holders && *holders == n.holders)) {
      holders = &n.holders;
      mine = of_holders.try_emplace(n.holders, -1).first->second;
    }
    int& known = accumulates(n) ? of_stack[static_cast<std::size_t>(n.vector)] : n.scope == Scope::tower ? of_vector[static_cast<std::size_t>(n.vector)] : n.scope == Scope::device ? of_owners[static_cast<std::size_t>(n.owners)] : mine;
    if (known < 0) {
      known = static_cast<int>(columns_.size());
      const std::map<int, int> column = spread(plan, n, last);
      columns_.emplace_back(column.begin(), column.end());
      if (&known == &mine) of_holders[n.holders] = known;
    }
    of_node_[i] = known;
  }
}

int RegionCounts::at(const Column& column, int device) {
  const auto found = std::lower_bound(column.begin(), column.end(), std::pair(device, 0));
  return found != column.end() && found->first == device ? found->second : 0;
}

std::vector<int> RegionCounts::row(int device) const {
  std::vector<int> out;
  out.reserve(columns_.size());
  for (const Column& c : columns_) out.push_back(at(c, device));
  return out;
}

int RegionCounts::count(std::size_t node, int device) const { return of_node_[node] < 0 ? 0 : at(columns_[static_cast<std::size_t>(of_node_[node])], device); }

NumberLists RegionCounts::by_group(const PlacedGraph& plan) const {
  std::vector<int> first_of(plan.cluster.devices.size(), -1);  // per device, the group whose first it is
  for (std::size_t g = 0; g < plan.groups.size(); ++g) first_of[static_cast<std::size_t>(plan.groups[g].devices[0])] = static_cast<int>(g);
  const NumberLists groups(columns_.size(), [&](auto add) {
    for (std::size_t c = 0; c < columns_.size(); ++c)
      for (auto [device, count] : columns_[c])
        if (const int g = first_of[static_cast<std::size_t>(device)]; g >= 0 && count) add(c, g);
  });
  return {plan.groups.size(), [&](auto add) {
            for (std::size_t i = 0; i < of_node_.size(); ++i)
              if (of_node_[i] >= 0)
                for (int g : groups[static_cast<std::size_t>(of_node_[i])]) add(static_cast<std::size_t>(g), static_cast<int>(i));
          }};
}

std::vector<int> slot_ranks(const PlacedGraph& plan, const PlanStream& stream) {
  using Rank = std::pair<std::int64_t, int>;
  std::vector<Rank> left(static_cast<std::size_t>(std::max(0, stream.slots)), {0, -1});
  std::vector<int> out(left.size());
  for (std::size_t e = 0; e < stream.entries.size(); ++e) {
    const StreamEntry& entry = stream.entries[e];
    const auto s = static_cast<std::size_t>(entry.slot);
    if (s >= left.size()) continue;
    const bool known = plan.classes.size() > 1 && entry.tower >= 0 && entry.tower < plan.towers;
    left[s] = {std::min(left[s].first, known ? -plan.share(entry.tower).rows : 0), static_cast<int>(e)};
  }
  std::vector<std::size_t> order(left.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return left[a] < left[b]; });
  for (std::size_t rank = 0; rank < order.size(); ++rank) out[order[rank]] = static_cast<int>(rank);
  return out;
}

namespace {

std::int64_t sum(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? std::numeric_limits<std::int64_t>::max() : out;
}

/// The frame that a class has on a device; null: it runs nothing there.
const FrameSize* frame_on(const PlacedGraph& plan, const TowerClass& cls, std::size_t tower, int device) {
  for (std::size_t x = 0; x < std::min(plan.vectors.size(), cls.pattern.size()); ++x)
    if (tower < plan.vectors[x].size() && plan.vectors[x][tower] == device)
      if (const auto local = static_cast<std::size_t>(cls.pattern[x].device); local < cls.frame.size()) return &cls.frame[local];
  return nullptr;
}

}  // namespace

StreamFrames stream_frames(const PlacedGraph& plan, const PlanStream& stream) {
  StreamFrames out;
  const auto d = static_cast<std::size_t>(stream.device);
  const int count = std::min(stream.slots, plan.towers);
  if (stream.name == "main" || count <= 0 || d >= plan.frames.size()) return out;
  struct Size {
    std::int64_t stride = 0, past = 0;
  };
  std::vector<Size> slots(static_cast<std::size_t>(count));  // by rank
  std::int64_t transient = 0, at = 0;
  auto use = [&](Size& slot, const FrameSize& f) {
    slot = {std::max(slot.stride, f.kept), std::max(slot.past, sum(f.kept, f.tail))};
    transient = std::max(transient, f.transient);
  };
  const std::vector<int> ranks = slot_ranks(plan, stream);
  std::vector<const TowerClass*> fresh(static_cast<std::size_t>(std::max(0, plan.towers)));  // those not looked at
  for (const TowerClass& c : plan.classes)
    for (int t : c.towers)
      if (static_cast<std::size_t>(t) < fresh.size()) fresh[static_cast<std::size_t>(t)] = &c;
  for (const StreamEntry& e : stream.entries) {
    const auto t = static_cast<std::size_t>(e.tower), slot = static_cast<std::size_t>(e.slot);
    const std::size_t rank = slot < ranks.size() ? static_cast<std::size_t>(ranks[slot]) : slots.size();
    if (t >= fresh.size() || rank >= slots.size()) continue;
    if (const TowerClass* cls = std::exchange(fresh[t], nullptr))
      if (const FrameSize* f = frame_on(plan, *cls, t, stream.device)) use(slots[rank], *f);
  }
  for (const Size& slot : slots) {
    out.kept.push_back(at);
    out.kept_past = std::max(out.kept_past, sum(at, slot.past));
    at = sum(at, slot.stride);
  }
  out.past = std::max(out.kept_past, sum(out.transient(), transient));
  return out;
}

DeviceFrames device_frames(const PlacedGraph& plan, int device) {
  DeviceFrames out;
  std::vector<int> class_of(static_cast<std::size_t>(plan.towers), -1);
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (int t : plan.classes[c].towers) class_of[static_cast<std::size_t>(t)] = static_cast<int>(c);
  int number = 0;
  for (const PlanStream& s : plan.streams) {
    if (s.device != device || s.name == "main") continue;
    const StreamFrames frames = stream_frames(plan, s);
    const std::size_t first = out.kept.size();
    for (std::size_t rank = 0; rank < frames.kept.size(); ++rank) out.kept.push_back({{number, static_cast<int>(rank)}, out.past + frames.kept[rank], {}});
    if (!frames.kept.empty()) out.transient.push_back({{number, -1}, out.past + frames.transient(), {}});
    const std::vector<int> ranks = slot_ranks(plan, s);
    for (const StreamEntry& e : s.entries)
      for (DeviceFrames::One* one : {&out.kept[first + static_cast<std::size_t>(ranks[static_cast<std::size_t>(e.slot)])], &out.transient.back()})
        one->classes.insert(class_of[static_cast<std::size_t>(e.tower)]);
    out.past += frames.past;
    ++number;
  }
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

std::vector<std::vector<int>> region_ranks(const PlacedGraph& plan, const std::vector<std::vector<bool>>& last) {
  std::vector<std::vector<int>> out(plan.vectors.size());
  for (std::size_t x = 0; x < plan.vectors.size(); ++x) {
    std::map<int, int> count;
    for (std::size_t t = 0; t < plan.vectors[x].size(); ++t) {
      const int d = plan.vectors[x][t];
      out[x].push_back(d < 0 ? 0 : is_last_in_slot(last, static_cast<int>(t), d) ? count[d] : count[d]++);
    }
  }
  return out;
}

MemoryParts::MemoryParts(const PlacedGraph& p, const Instances& i, const NumberLists& r)
    : plan(p), instances(i), readers(r), joined(joined_values(p)), kept(kept_values(p)), last(last_in_slots(p)), frames_on(p.cluster.devices.size()), towers_on(p.cluster.devices.size()), joint(joint_steps(p)), counts(p, joined, last) {
  std::vector<int> until(joint.size(), -1);  // per number
  for (std::size_t k = 0; k < joint.size(); ++k)
    if (joint[k] >= 0) until[static_cast<std::size_t>(joint[k])] = std::max(until[static_cast<std::size_t>(joint[k])], plan.nodes[k].order);
  for (std::size_t k = 0; k < joint.size(); ++k) joint_until.push_back(joint[k] < 0 ? plan.nodes[k].order : until[static_cast<std::size_t>(joint[k])]);
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

int MemoryParts::local_on(int cls, int tower, int device) const {
  for (std::size_t x = 0; x < plan.vectors.size(); ++x)
    if (const int number = local(cls, static_cast<int>(x)); number >= 0 && plan.vectors[x][static_cast<std::size_t>(tower)] == device) return number;
  return -1;
}

bool MemoryParts::has_one_slot(int device) const {
  int slots = 0;
  for (const PlanStream& s : plan.streams)
    if (s.device == device && s.name != "main") slots += s.slots;
  return slots == 1;
}

std::shared_ptr<MemoryParts> set_groups(PlacedGraph& plan, const Instances& instances, const NumberLists& readers) {
  auto out = std::make_shared<MemoryParts>(plan, instances, readers);
  const MemoryParts& parts = *out;
  std::vector<std::vector<int>> frames(plan.cluster.devices.size());  // what shapes a device's frames: towers, slots, classes
  std::vector<int> class_of(static_cast<std::size_t>(plan.towers), -1);
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (int t : plan.classes[c].towers) class_of[static_cast<std::size_t>(t)] = static_cast<int>(c);
  for (const PlanStream& s : plan.streams) {
    if (s.name == "main") continue;
    std::vector<int>& shape = frames[static_cast<std::size_t>(s.device)];
    shape.push_back(s.slots);
    const std::vector<int> ranks = slot_ranks(plan, s);
    std::set<std::pair<int, FrameKey>> used;  // a slot is as large as the frames that use it
    for (const StreamEntry& e : s.entries) {
      const int cls = class_of[static_cast<std::size_t>(e.tower)];
      used.insert({ranks[static_cast<std::size_t>(e.slot)], {cls, parts.local_on(cls, e.tower, s.device)}});
    }
    for (const auto& [rank, key] : used) shape.insert(shape.end(), {rank, key.first, key.second});
  }
  const std::vector<int> spaces = space_numbers(plan.cluster);
  std::map<int, int> devices_in;
  for (int s : spaces) ++devices_in[s];
  for (std::size_t d = 0; d < frames.size(); ++d) {
    frames[d].push_back(-parts.towers_on[d]);
    for (auto [c, local] : parts.frames_on[d]) frames[d].insert(frames[d].end(), {c, local});
    // Neighbours read what lies here: a group is planned by its first device, which in one memory is who they read from.
    frames[d].push_back(devices_in.at(spaces[d]) > 1 ? spaces[d] : -1);
  }
  std::map<std::tuple<std::vector<int>, std::vector<int>, std::string>, std::size_t> known;
  plan.groups.clear();
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) {
    auto [at, fresh] = known.try_emplace({std::move(frames[d]), parts.counts.row(static_cast<int>(d)), plan.cluster.devices[d].kernels()}, plan.groups.size());
    if (fresh) plan.groups.emplace_back();
    plan.groups[at->second].devices.push_back(static_cast<int>(d));
  }
  for (PlanNode& n : plan.nodes) {
    n.by_class.reset(n.scope == Scope::tower ? plan.classes.size() : 0);
    n.by_group.reset(plan.groups.size());
    for (std::size_t c = 0; c < n.by_class.size(); ++c)
      if (n.phases[c] >= 0) n.by_class[c].outputs.assign(n.outputs.size(), Slot{});
  }
  out->nodes_of_group = parts.counts.by_group(plan);
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (int i : parts.nodes_of_group[g]) {
      PlanNode& n = plan.nodes[static_cast<std::size_t>(i)];
      n.by_group[g].outputs.assign(n.outputs.size(), Slot{});
    }
  return out;
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

namespace {

/// Transient parts behind all that any class keeps on any of its devices.
void put_behind(PlacedGraph& plan, MemoryParts& parts) {
  std::map<FrameKey, std::int64_t> behind;
  auto frame = [&](const FrameKey& key) -> FrameSize& { return plan.classes[static_cast<std::size_t>(key.first)].frame[static_cast<std::size_t>(key.second)]; };
  for (const std::vector<FrameKey>& keys : parts.frames_on) {
    std::int64_t past = 0;
    for (const FrameKey& key : keys) past = std::max(past, frame(key).kept + frame(key).tail);
    for (const FrameKey& key : keys) behind[key] = std::max(behind[key], past);
  }
  for (auto& [key, layout] : parts.layouts) {
    if (!frame(key).transient) continue;
    frame(key).transient += behind[key];
    for (FrameBlock& b : layout)
      if (b.slot.region == Slot::kTransient) b.slot.offset += behind[key];
  }
}

Slot slot_of(const RegionItem& item) {
  return item.places.empty() ? Slot{Slot::kRegion, item.offset, item.each, {}} : Slot::of(Slot::kRegion, item.places);
}

}  // namespace

void plan_memory(PlacedGraph& plan, MemoryParts& parts) {
  plan_frames(plan, parts);
  put_behind(plan, parts);
  pack_slots(plan, parts);
  set_frames(plan, parts);
  plan_regions(plan, parts);
  set_over(plan, parts);
  place_regions(plan, parts);
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (const RegionItem& item : parts.regions[g].items) {
      Variant& variant = plan.nodes[item.node].by_group[g];
      (item.scratch ? variant.scratch : variant.outputs[item.output]) = slot_of(item);
    }
  for (const FrameOwner& o : parts.owners) {
    Variant& variant = plan.nodes[o.node].by_class[static_cast<std::size_t>(o.key.first)];
    (o.output < 0 ? variant.scratch : variant.outputs[static_cast<std::size_t>(o.output)]) = parts.layouts.at(o.key)[o.block].slot;
  }
}

void JoinedReads::set(std::vector<std::pair<std::size_t, std::int64_t>> reads) {
  reads_ = std::move(reads);
  std::sort(reads_.begin(), reads_.end());
}

std::int64_t JoinedReads::operator[](std::size_t value) const {
  const auto at = std::lower_bound(reads_.begin(), reads_.end(), std::pair(value, std::int64_t{-1}));
  return at != reads_.end() && at->first == value ? at->second : -1;
}

std::vector<DeviceBytes> device_bytes(const PlacedGraph& plan) {
  std::vector<DeviceBytes> out(plan.cluster.devices.size());
  for (const PlanStream& s : plan.streams) {
    auto d = static_cast<std::size_t>(s.device);
    if (d >= out.size()) continue;
    const StreamFrames frames = stream_frames(plan, s);
    out[d].kept += frames.kept_past;
    out[d].transient += frames.past - frames.kept_past;
  }
  for (const DeviceGroup& g : plan.groups)
    for (int device : g.devices)
      if (auto d = static_cast<std::size_t>(device); d < out.size()) out[d].state = g.state, out[d].region = std::max<std::int64_t>(0, g.region - out[d].kept - out[d].transient);
  const std::vector<std::int64_t> landed = landing_bytes(plan);
  for (std::size_t d = 0; d < out.size(); ++d) out[d].landing = landed[d];
  return out;
}

std::vector<std::int64_t> total_bytes(const PlacedGraph& plan) {
  std::vector<std::int64_t> out;
  for (const DeviceBytes& b : device_bytes(plan)) out.push_back(b.total());
  return out;
}

}  // namespace belfry
