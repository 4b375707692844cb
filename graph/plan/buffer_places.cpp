#include <belfry/graph/plan/buffer_places.h>

#include <fmt/format.h>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/unbound.h>

namespace belfry {

BufferPlaces::BufferPlaces(const PlacedGraph& plan) : plan_(plan), stacks_(plan), last_(last_in_slots(plan)), rank_(region_ranks(plan, last_)) {
  for (std::size_t c = 0; c < plan_.classes.size(); ++c)
    for (int t : plan_.classes[c].towers) class_of_[t] = static_cast<int>(c);
  for (std::size_t g = 0; g < plan_.groups.size(); ++g)
    for (int d : plan_.groups[g].devices) group_of_[d] = static_cast<int>(g);
  for (const PlanNode& n : plan_.nodes)
    if (n.scope == Scope::device || is_join(n)) {
      if (n.owners >= static_cast<int>(plan_.vectors.size())) unbound(fmt::format("'{}' has no owners", n.name));
      if (n.owners < 0 || owned_.contains(n.owners)) continue;
      Owned& o = owned_[n.owners];
      o.pieces = belfry::pieces(plan_.vectors[static_cast<std::size_t>(n.owners)], plan_.towers);
      o.rank.resize(static_cast<std::size_t>(plan_.towers), -1);
      for (const Piece& p : o.pieces) {
        std::vector<Piece>& here = o.on[p.device];
        o.rank[static_cast<std::size_t>(p.low)] = static_cast<int>(here.size());
        here.push_back(p);
      }
    }
  std::vector<std::int64_t> frames;
  for (std::size_t d = 0; d < plan_.cluster.devices.size(); ++d) {
    if (!group_of_.contains(static_cast<int>(d)) || d >= plan_.frames.size()) unbound(fmt::format("{} is in no group", name(static_cast<int>(d))));
    frames.push_back(group(static_cast<int>(d)).state);
  }
  for (std::size_t s = 0; s < plan_.streams.size(); ++s) {
    const PlanStream& stream = plan_.streams[s];
    const auto d = static_cast<std::size_t>(stream.device);
    if (d >= frames.size() || stream.name == "main") continue;
    const auto& [begin, mine] = frames_of_.try_emplace(static_cast<int>(s), frames[d], stream_frames(plan_, stream)).first->second;
    frames[d] += mine.past;
    const std::vector<int> ranks = slot_ranks(plan_, stream);
    for (const StreamEntry& e : stream.entries) {
      if (e.tower >= plan_.present()) unbound(fmt::format("tower {} has no rows, but runs on {}", e.tower, name(stream.device)));
      slot_of_[{e.tower, stream.device}] = {static_cast<int>(s), e.slot >= 0 && e.slot < stream.slots ? ranks[static_cast<std::size_t>(e.slot)] : e.slot};
    }
  }
}

const BufferPlaces::Owned& BufferPlaces::owned(int owners) const {
  const auto at = owned_.find(owners);
  if (at == owned_.end()) unbound("what each device has of the towers has no owners");
  return at->second;
}

const std::vector<Piece>& BufferPlaces::pieces_on(int owners, int device) const {
  static const std::vector<Piece> none;
  const Owned& o = owned(owners);
  const auto at = o.on.find(device);
  return at == o.on.end() ? none : at->second;
}

std::size_t BufferPlaces::group_of(int device) const {
  const auto at = group_of_.find(device);
  if (at == group_of_.end()) unbound(fmt::format("device {} is in no group", device));
  return static_cast<std::size_t>(at->second);
}

int BufferPlaces::class_of(int tower) const {
  const auto at = class_of_.find(tower);
  if (at == class_of_.end()) unbound(fmt::format("tower {} is in no class", tower));
  return at->second;
}

const Variant& BufferPlaces::variant(int i, int tower, int device) const {
  const PlanNode& n = plan_.nodes[static_cast<std::size_t>(i)];
  if (n.scope == Scope::tower) {
    const auto c = static_cast<std::size_t>(class_of(tower));
    if (c >= n.by_class.size()) unbound(fmt::format("'{}' has no kernel for the class of tower {}", n.name, tower));
    return n.by_class[c];
  }
  const std::size_t g = group_of(device);
  if (g >= n.by_group.size()) unbound(fmt::format("'{}' has no kernel for its device", n.name));
  return n.by_group[g];
}

Slot BufferPlaces::slot(int i, std::size_t k, int part, int device) const {
  const PlanNode& n = plan_.nodes[static_cast<std::size_t>(i)];
  if (n.scope == Scope::tower && is_last_in_slot(last_, part, device))
    if (const Variant& v = variant(i, part, device); k < v.outputs.size() && v.outputs[k].region != Slot::kNone) return v.outputs[k];
  const std::size_t g = group_of(device);
  if (g < n.by_group.size() && k < n.by_group[g].outputs.size() && n.by_group[g].outputs[k].region != Slot::kNone) return n.by_group[g].outputs[k];
  if (n.scope == Scope::tower)
    if (const Variant& v = variant(i, part, device); k < v.outputs.size()) return v.outputs[k];
  return {};
}

int BufferPlaces::rank(const PlanNode& n, int part) const {
  if (accumulates(n) && part >= 0) return stacks_.of(n, part).at;
  if (n.scope == Scope::tower) return rank_[static_cast<std::size_t>(n.vector)][static_cast<std::size_t>(part)];
  if (n.scope != Scope::device || part < 0) return 0;  // scratch is one for all pieces
  const std::vector<int>& ranks = owned(n.owners).rank;
  if (static_cast<std::size_t>(part) >= ranks.size() || ranks[static_cast<std::size_t>(part)] < 0) unbound(fmt::format("'{}' has no piece of tower {}", n.name, part));
  return ranks[static_cast<std::size_t>(part)];
}

std::int64_t BufferPlaces::at(const Slot& s, const PlanNode& n, int part, int device) const {
  switch (s.region) {
    case Slot::kState: return s.offset;
    case Slot::kRegion:
      if (const auto at = s.at(static_cast<std::size_t>(rank(n, part)))) return group(device).state + *at;
      unbound(fmt::format("part {} of '{}' lies nowhere on {}: {}", part, n.name, name(device), s.more.empty() ? fmt::format("its parts are {} bytes apart", s.stride) : fmt::format("there are {} places", s.more.size() + 1)));
    case Slot::kKept:
    case Slot::kTransient: {
      if (part < 0) unbound(fmt::format("'{}' is outside the towers, but lies in a tower's frame", n.name));
      const auto at = slot_of_.find({part, device});
      if (at == slot_of_.end()) unbound(fmt::format("tower {} has no slot on {}", part, name(device)));
      const auto& [begin, frames] = frames_of_.at(at->second.stream);
      const auto rank = static_cast<std::size_t>(at->second.rank);
      if (rank >= frames.kept.size()) unbound(fmt::format("tower {} has slot {} of {} on {}", part, at->second.rank, frames.kept.size(), name(device)));
      if (s.region == Slot::kTransient) return begin + frames.transient() + s.offset;
      if (const auto in_slot = s.at(rank)) return begin + frames.kept[rank] + *in_slot;
      unbound(fmt::format("'{}' lies nowhere in slot {} of {}: there are {} places", n.name, rank, name(device), s.more.size() + 1));
    }
    case Slot::kFeed: return 0;
    case Slot::kNone: break;
  }
  unbound(fmt::format("'{}' has no offset on {}", n.name, name(device)));
}

}  // namespace belfry
