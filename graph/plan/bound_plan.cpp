#include <belfry/graph/plan/bound_plan.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/stream_frames.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

[[noreturn]] void unbound(const std::string& what) { throw UserError("unbound: " + what); }

}  // namespace

class Binder {
 public:
  explicit Binder(BoundPlan& out) : out_(out), plan_(out.plan), instances_(plan_), readers_(readers_of(plan_)), last_(last_in_slots(plan_)), rank_(region_ranks(plan_, last_)), stacks_(plan_) {
    for (std::size_t c = 0; c < plan_.classes.size(); ++c)
      for (int t : plan_.classes[c].towers) class_of_[t] = static_cast<int>(c);
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      for (int d : plan_.groups[g].devices) group_of_[d] = static_cast<int>(g);
    for (const PlanNode& n : plan_.nodes)
      for (auto [u, variable] : n.donates) variable_of_[u] = variable;
    for (int t = 0; t < plan_.present(); ++t) out.shares.push_back(plan_.share(t));
    for (const PlanNode& n : plan_.nodes)
      if (n.scope == Scope::device || is_join(n)) {
        if (n.owners >= static_cast<int>(plan_.vectors.size())) unbound(fmt::format("'{}' has no owners", n.name));
        if (n.owners >= 0) pieces_.try_emplace(n.owners, pieces(plan_.vectors[static_cast<std::size_t>(n.owners)], plan_.towers));
      }
  }

  void run() {
    place_devices();
    queue_steps();
    find_foreign_readers();
    for (std::size_t s = 0; s < queues_.size(); ++s) {
      out_.streams.emplace_back().reserve(queues_[s].size());
      for (std::size_t k = 0; k < queues_[s].size(); ++k) out_.streams.back().push_back(step(queues_[s][k], static_cast<int>(s), static_cast<int>(k) + 1));
    }
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i)
      if (plan_.nodes[i].scope == Scope::state)
        for (int d : plan_.nodes[i].holders) {
          const PlanNode& n = plan_.nodes[i];
          out_.state.push_back({static_cast<int>(i), d, buffer(static_cast<int>(i), 0, -1, d), range_on(plan_, n, n.outputs[0], d).first, type_on(plan_, n, n.outputs[0], n.holders.get().front()).bytes()});
        }
  }

 private:
  struct Queued {
    int node, tower, device, after;
  };
  using Producer = std::tuple<int, int, int>;  // node, tower, device

  const PlanNode& node(int i) const { return plan_.nodes[static_cast<std::size_t>(i)]; }
  std::string device_name(int d) const { return to_string(plan_.cluster.devices[static_cast<std::size_t>(d)].id); }

  /// Arena of a space: its devices in order; of a device: state, then the frames stream by stream, in whose gaps and behind which
  /// the region lies.
  void place_devices() {
    std::vector<DeviceBytes> bytes = device_bytes(plan_);
    std::vector<std::vector<std::size_t>> tower_streams(plan_.cluster.devices.size());
    for (std::size_t i = 0; i < plan_.streams.size(); ++i)
      if (auto d = static_cast<std::size_t>(plan_.streams[i].device); d < tower_streams.size() && plan_.streams[i].name != "main") tower_streams[d].push_back(i);
    for (std::size_t d = 0; d < plan_.cluster.devices.size(); ++d) {
      const std::string& space = plan_.cluster.devices[d].space;
      auto at = std::find(out_.spaces.begin(), out_.spaces.end(), space);
      if (at == out_.spaces.end()) {
        out_.spaces.push_back(space);
        out_.arena_bytes.push_back(0);
        at = out_.spaces.end() - 1;
      }
      auto s = static_cast<std::size_t>(at - out_.spaces.begin());
      space_of_.push_back(static_cast<int>(s));
      if (!group_of_.contains(static_cast<int>(d)) || d >= plan_.frames.size()) unbound(fmt::format("{} is in no group", device_name(static_cast<int>(d))));
      const DeviceGroup& group = plan_.groups[static_cast<std::size_t>(group_of_[static_cast<int>(d)])];
      std::int64_t start = out_.arena_bytes[s], frames = start + group.state;
      for (std::size_t i : tower_streams[d]) {
        StreamFrames mine = stream_frames(plan_, plan_.streams[i]);
        const std::int64_t past = frames + mine.past;
        frames_of_.try_emplace(static_cast<int>(i), frames, std::move(mine));
        frames = past;
      }
      out_.device_start.push_back(start);
      out_.device_bytes.push_back(bytes[d].total());
      out_.arena_bytes[s] += out_.device_bytes.back();
    }
  }

  /// Main: by order. Tower streams: the entries' phases. Every step gets its place in its stream.
  void queue_steps() {
    std::map<std::tuple<int, int, int>, std::vector<int>> own;  // class, epoch, phase → nodes
    std::map<int, std::vector<int>> main;
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      if (n.scope == Scope::tower) {
        for (std::size_t c = 0; c < plan_.classes.size(); ++c)
          if (c < n.phases.size() && n.phases[c] >= 0) own[{static_cast<int>(c), n.epoch, n.phases[c]}].push_back(static_cast<int>(i));
      } else if (n.scope != Scope::state) {
        for (int d : n.holders) main[d].push_back(static_cast<int>(i));
      }
    }
    auto by_order = [&](int a, int b) { return node(a).order < node(b).order; };
    for (auto& [key, nodes] : own) std::sort(nodes.begin(), nodes.end(), by_order);
    for (auto& [key, nodes] : main) std::sort(nodes.begin(), nodes.end(), by_order);
    for (std::size_t s = 0; s < plan_.streams.size(); ++s) {
      const PlanStream& stream = plan_.streams[s];
      const std::vector<int> ranks = slot_ranks(plan_, stream);
      std::vector<Queued> queue;
      if (stream.name == "main") {
        for (int i : main[stream.device]) queue.push_back({i, -1, stream.device, -1});
      } else {
        for (const StreamEntry& e : stream.entries) {
          slot_of_[{e.tower, stream.device}] = {static_cast<int>(s), e.slot >= 0 && e.slot < stream.slots ? ranks[static_cast<std::size_t>(e.slot)] : e.slot};
          bool first = true;
          auto cls = class_of_.find(e.tower);
          if (cls == class_of_.end()) unbound(fmt::format("tower {} is in no class", e.tower));
          for (int i : own[{cls->second, e.epoch, e.phase}])
            if (plan_.device_of(node(i), e.tower) == stream.device) {
              queue.push_back({i, e.tower, stream.device, first ? e.after : -1});
              first = false;
            }
        }
      }
      for (std::size_t k = 0; k < queue.size(); ++k) {
        const Queued& q = queue[k];
        if (!where_.try_emplace({q.node, q.tower, q.device}, std::pair(static_cast<int>(s), static_cast<int>(k) + 1)).second)
          unbound(fmt::format("'{}' of tower {} runs twice", node(q.node).name, q.tower));
      }
      queues_.push_back(std::move(queue));
    }
  }

  /// (tower, device) → steps on other devices that read its frame.
  void find_foreign_readers() {
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      if (n.scope != Scope::tower) continue;
      bool copy = n.op == kCopy;  // inputs name values, never copies: a copy is read by readers of what it copies
      for (ValueIndex v : copy ? n.inputs : n.outputs)
        for (int r : readers_[static_cast<std::size_t>(v)]) {
          const PlanNode& reader = node(r);
          if ((copy && reader.op == kCopy) || reader.scope != Scope::tower || (reader.vector == n.vector && instances_.copies(v).empty())) continue;
          for (int t = 0; t < plan_.present(); ++t) {
            int a = plan_.device_of(n, t), b = plan_.device_of(reader, t);
            if (a >= 0 && b >= 0 && a != b && (reader.op == kCopy || instances_.own(v, t, b).node == static_cast<int>(i))) foreign_[{t, a}].insert({r, t, b});
          }
        }
    }
  }

  const Variant& variant(int i, int tower, int device) const {
    const PlanNode& n = node(i);
    if (n.scope == Scope::tower) {
      auto c = static_cast<std::size_t>(class_of_.at(tower));
      if (c >= n.by_class.size()) unbound(fmt::format("'{}' has no kernel for the class of tower {}", n.name, tower));
      return n.by_class[c];
    }
    auto g = static_cast<std::size_t>(group_of_.at(device));
    if (g >= n.by_group.size()) unbound(fmt::format("'{}' has no kernel for its device", n.name));
    return n.by_group[g];
  }

  Slot slot(int i, std::size_t k, int tower, int device) const {
    const PlanNode& n = node(i);
    if (n.scope == Scope::tower && is_last_in_slot(last_, tower, device))
      if (const Variant& v = variant(i, tower, device); k < v.outputs.size() && v.outputs[k].region != Slot::kNone) return v.outputs[k];
    auto g = static_cast<std::size_t>(group_of_.at(device));
    if (g < n.by_group.size() && k < n.by_group[g].outputs.size() && n.by_group[g].outputs[k].region != Slot::kNone) return n.by_group[g].outputs[k];
    if (n.scope == Scope::tower)
      if (const Variant& v = variant(i, tower, device); k < v.outputs.size()) return v.outputs[k];
    return {};
  }

  int rank(const PlanNode& n, int part, int device) const {
    if (accumulates(n) && part >= 0) return stacks_.of(n, part).at;
    if (n.scope == Scope::tower) return rank_[static_cast<std::size_t>(n.vector)][static_cast<std::size_t>(part)];
    if (n.scope != Scope::device || part < 0) return 0;  // scratch is one for all pieces
    int out = 0;
    for (const Piece& p : pieces_.at(n.owners)) {
      if (p.device == device && p.low == part) return out;
      out += p.device == device;
    }
    return out;
  }

  std::int64_t address(const Slot& s, const PlanNode& n, int part, int device) {
    std::int64_t start = out_.device_start[static_cast<std::size_t>(device)];
    const DeviceGroup& group = plan_.groups[static_cast<std::size_t>(group_of_.at(device))];
    switch (s.region) {
      case Slot::kState: return start + s.offset;
      case Slot::kRegion:
        if (const auto at = s.at(static_cast<std::size_t>(rank(n, part, device)))) return start + group.state + *at;
        unbound(fmt::format("part {} of '{}' lies nowhere on {}: {}", part, n.name, device_name(device), s.more.empty() ? fmt::format("its parts are {} bytes apart", s.stride) : fmt::format("there are {} places", s.more.size() + 1)));
      case Slot::kKept:
      case Slot::kTransient: {
        auto at = slot_of_.find({part, device});
        if (at == slot_of_.end()) unbound(fmt::format("tower {} has no slot on {}", part, device_name(device)));
        const auto& [begin, frames] = frames_of_.at(at->second.first);
        const auto rank = static_cast<std::size_t>(at->second.second);
        if (rank >= frames.kept.size()) unbound(fmt::format("tower {} has slot {} of {} on {}", part, at->second.second, frames.kept.size(), device_name(device)));
        if (s.region == Slot::kTransient) return begin + frames.transient() + s.offset;
        if (const auto in_slot = s.at(rank)) return begin + frames.kept[rank] + *in_slot;
        unbound(fmt::format("'{}' lies nowhere in slot {} of {}: there are {} places", n.name, rank, device_name(device), s.more.size() + 1));
      }
      case Slot::kFeed: return 0;
      case Slot::kNone: break;
    }
    unbound(fmt::format("'{}' has no offset on {}", n.name, device_name(device)));
  }

  BufferRef buffer(int i, std::size_t k, int part, int device) {
    const PlanNode& n = node(i);
    if (k >= n.outputs.size()) unbound(fmt::format("'{}' has no output {}", n.name, k));
    BufferRef out;
    ValueIndex v = n.outputs[k];
    out.space = space_of_[static_cast<std::size_t>(device)];
    out.type = n.scope == Scope::tower ? local_type(plan_.value(v), out_.shares[static_cast<std::size_t>(part)]) : type_on(plan_, n, v, device);
    out.bytes = out.type.bytes();
    out.tag = {v, part, device};
    if (auto variable = variable_of_.find(v); variable != variable_of_.end()) {
      int w = plan_.value(variable->second).maker;
      out.at = address(slot(w, 0, -1, device), node(w), -1, device);
    } else {
      Slot s = slot(i, k, part, device);
      out.at = address(s, n, part, device);
      if (s.region == Slot::kFeed) out.space = kFeedSpace;
    }
    return out;
  }

  /// What a tower has added up.
  Part sum(int i, int tower, int device) {
    const Accumulated& a = stacks_.of(node(i), tower);
    return {a.low, a.high, buffer(i, 0, tower, device)};
  }

  /// What a node reads as value v.
  std::vector<Part> source(int i, ValueIndex v, int tower, int device) {
    const PlanNode& n = node(i);
    const PlanNode& m = plan_.maker(v);
    int maker = plan_.value(v).maker;
    auto k = static_cast<std::size_t>(plan_.value(v).output);
    bool joins = is_join(n) || n.op == kPreAggregate;
    std::vector<Part> out;
    if (accumulates(n)) {
      for (int t : stacks_.of(n, tower).reads) out.push_back(sum(i, t, device));
      out.push_back({tower, tower + 1, buffer(maker, k, tower, device)});
      return out;
    }
    if (joins && m.scope == Scope::device) {
      for (const Piece& p : pieces_.at(m.owners))
        if (takes_part(plan_, n, p.low, device)) out.push_back({p.low, p.high, buffer(maker, k, p.low, p.device)});
    } else if (joins && m.scope == Scope::tower) {
      for (int t = 0; t < plan_.present(); ++t)
        if (int e = plan_.device_of(m, t); e >= 0 && takes_part(plan_, n, t, device) && stacks_.is_joined(m, t)) out.push_back(accumulates(m) ? sum(maker, t, e) : Part{t, t + 1, buffer(maker, k, t, e)});
    } else if (m.scope == Scope::tower) {
      auto at = n.op == kCopy ? Instances::At{maker, plan_.device_of(m, tower)} : instances_.own(v, tower, device);
      if (at.device < 0) unbound(fmt::format("'{}' reads '{}', which tower {} lacks", n.name, plan_.value(v).name, tower));
      out.push_back({0, 1, buffer(at.node, at.node == maker ? k : 0, tower, at.device)});
    } else if (joins_ranges(plan_, n)) {
      for (std::size_t h = 0; h < m.holders.size(); ++h) out.push_back({static_cast<int>(h), static_cast<int>(h) + 1, buffer(maker, k, -1, m.holders.get()[h])});
    } else {
      if (m.holders.empty()) unbound(fmt::format("'{}' has no device", m.name));
      auto at = moves_values(n) ? Instances::At{maker, instances_.moved_from(n, v, device)} : instances_.shared(v, device);
      out.push_back({0, 1, buffer(at.node, at.node == maker ? k : 0, -1, at.device)});
    }
    if (n.ranged && !m.ranged)
      for (Part& p : out) narrow(p.buffer, range_on(plan_, n, v, device));
    return out;
  }

  static void narrow(BufferRef& b, const Range& r) {
    if (r.past - r.first == b.type.elements()) return;
    b.type.shape = {r.past - r.first};
    b.bytes = b.type.bytes();
    b.at += r.first * static_cast<std::int64_t>(size_of(b.type.dtype));
  }

  /// The steps that one wait of the plan stands for.
  std::vector<Producer> producers(int i, const Wait& w, int tower, int device) {
    const PlanNode& n = node(i);
    if (w.value < 0 || w.value >= static_cast<int>(plan_.values.size())) unbound(fmt::format("'{}' waits for no value", n.name));
    const PlanNode& m = plan_.maker(w.value);
    int maker = plan_.value(w.value).maker;
    std::vector<Producer> out;
    switch (w.relation) {
      case Wait::kOwn:
        if (n.scope != Scope::tower || m.scope != Scope::tower) unbound(fmt::format("'{}' waits for its own '{}', which is no tower's", n.name, m.name));
        if (n.op == kCopy) return {{maker, tower, plan_.device_of(m, tower)}};
        {
          auto at = instances_.own(w.value, tower, device);
          return {{at.node, tower, at.device}};
        }
      case Wait::kTowers:
      case Wait::kLocal:
        if (m.scope != Scope::tower) unbound(fmt::format("'{}' waits for the towers' '{}', which is no tower's", n.name, m.name));
        for (int t = 0; t < plan_.present(); ++t)
          if (int e = plan_.device_of(m, t); e >= 0 && (w.relation == Wait::kTowers || e == device)) out.emplace_back(maker, t, e);
        return out;
      case Wait::kEvery:
        for (int e : m.holders) out.emplace_back(maker, -1, e);
        return out;
      case Wait::kShared: {
        if (m.scope == Scope::tower || m.holders.empty()) unbound(fmt::format("'{}' waits for the shared '{}', which is not shared", n.name, m.name));
        auto at = moves_values(n) ? Instances::At{maker, instances_.moved_from(n, w.value, device)} : instances_.shared(w.value, device);
        if (node(at.node).scope != Scope::state) out.emplace_back(at.node, -1, at.device);
        return out;
      }
      case Wait::kReaders: break;
    }
    for (int r : readers_[static_cast<std::size_t>(w.value)]) {
      if (r == i) continue;
      const PlanNode& reader = node(r);
      auto consider = [&](int t, int e) {
        std::vector<Part> parts = source(r, w.value, t, e);
        if (std::any_of(parts.begin(), parts.end(), [&](const Part& p) { return p.buffer.tag == Tag{w.value, -1, device}; })) out.emplace_back(r, t, e);
      };
      if (reader.scope == Scope::tower) {
        for (int t = 0; t < plan_.present(); ++t)
          if (int e = plan_.device_of(reader, t); e >= 0) consider(t, e);
      } else {
        for (int e : reader.holders) consider(-1, e);
      }
    }
    return out;
  }

  Step step(const Queued& q, int stream, int sequence) {
    const PlanNode& n = node(q.node);
    Step out;
    out.node = q.node, out.tower = q.tower, out.device = q.device, out.stream = stream, out.sequence = sequence;
    std::vector<Producer> waited;
    for (const Wait& w : n.waits) {
      auto some = producers(q.node, w, q.tower, q.device);
      waited.insert(waited.end(), some.begin(), some.end());
    }
    if (q.after >= 0)
      if (auto f = foreign_.find({q.after, q.device}); f != foreign_.end()) waited.insert(waited.end(), f->second.begin(), f->second.end());
    std::map<int, int> furthest;
    for (const Producer& p : waited) {
      auto at = where_.find(p);
      if (at == where_.end()) unbound(fmt::format("'{}' of tower {} is in no stream", node(std::get<0>(p)).name, std::get<1>(p)));
      if (at->second.first != stream) furthest[at->second.first] = std::max(furthest[at->second.first], at->second.second);
    }
    for (auto [s, count] : furthest) out.waits.push_back({s, count});
    std::vector<ValueIndex> read = values_read(n);
    out.reads.reserve(n.inputs.size()), out.writes.reserve(n.outputs.size());
    for (ValueIndex v : n.inputs) out.reads.push_back(std::count(read.begin(), read.end(), v) ? source(q.node, v, q.tower, q.device) : std::vector<Part>{});
    for (std::size_t k = 0; k < n.outputs.size(); ++k) {
      std::vector<Part> parts;
      if (n.scope == Scope::device) {
        for (const Piece& p : pieces_.at(n.owners))
          if (p.device == q.device) parts.push_back({p.low, p.high, buffer(q.node, k, p.low, q.device)});
      } else if (accumulates(n)) {
        parts.push_back(sum(q.node, q.tower, q.device));
      } else if (plan_.value(n.outputs[k]).read) {
        parts.push_back({0, 1, buffer(q.node, k, q.tower, q.device)});
      }
      out.writes.push_back(std::move(parts));
    }
    out.variant = &variant(q.node, q.tower, q.device);
    if (out.variant->scratch_bytes) {
      out.scratch.space = space_of_[static_cast<std::size_t>(q.device)];
      out.scratch.at = address(out.variant->scratch, n, n.scope == Scope::tower ? q.tower : -1, q.device);
      out.scratch.bytes = out.variant->scratch_bytes;
      out.scratch.tag = {-2, q.tower, q.device};
    }
    return out;
  }

  BoundPlan& out_;
  const PlacedGraph& plan_;
  Instances instances_;
  std::vector<std::vector<int>> readers_;
  std::map<int, int> class_of_, group_of_;
  std::map<ValueIndex, ValueIndex> variable_of_;
  std::map<int, std::vector<Piece>> pieces_;
  std::vector<std::vector<bool>> last_;                    // last_in_slots
  std::vector<std::vector<int>> rank_;                     // region_ranks
  Stacks stacks_;
  std::vector<int> space_of_;
  std::map<int, std::pair<std::int64_t, StreamFrames>> frames_of_;                    // stream → where its frames begin, and they
  std::map<std::pair<int, int>, std::pair<int, int>> slot_of_;                        // tower, device → stream, place of its slot
  std::map<Producer, std::pair<int, int>> where_;                                     // → stream, sequence
  std::map<std::pair<int, int>, std::set<Producer>> foreign_;
  std::vector<std::vector<Queued>> queues_;
};

BoundPlan::BoundPlan(const PlacedGraph& plan) : plan(plan) { Binder(*this).run(); }

}  // namespace belfry
