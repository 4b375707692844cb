#include <belfry/graph/plan/bound_plan.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/buffer_places.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/unbound.h>
#include <belfry/graph/structural.h>

namespace belfry {

class Binder {
 public:
  explicit Binder(BoundPlan& out) : out_(out), plan_(out.plan), instances_(plan_), readers_(readers_of(plan_)), places_(plan_) {
    for (const PlanNode& n : plan_.nodes)
      for (auto [u, variable] : n.donates) variable_of_[u] = variable;
    for (int t = 0; t < plan_.present(); ++t) out.shares.push_back(plan_.share(t));
  }

  void run() {
    place_devices();
    queue_steps();
    find_foreign_readers();
    for (std::size_t s = 0; s < queues_.size(); ++s) {
      out_.streams.emplace_back().reserve(queues_[s].size());
      for (std::size_t k = 0; k < queues_[s].size(); ++k) out_.streams.back().push_back(step(queues_[s][k], static_cast<int>(s), static_cast<int>(k) + 1));
    }
    make_once();
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
  std::int64_t start(int device) const { return out_.device_start[static_cast<std::size_t>(device)]; }

  /// Arena of a space: its devices in order.
  void place_devices() {
    const std::vector<DeviceBytes> bytes = device_bytes(plan_);
    space_of_ = space_numbers(plan_.cluster);
    for (std::size_t d = 0; d < plan_.cluster.devices.size(); ++d) {
      const auto s = static_cast<std::size_t>(space_of_[d]);
      if (s == out_.spaces.size()) {
        out_.spaces.push_back(plan_.cluster.devices[d].space);
        out_.arena_bytes.push_back(0);
      }
      out_.device_start.push_back(out_.arena_bytes[s]);
      out_.device_bytes.push_back(bytes[d].total() - bytes[d].landing);
      out_.arena_bytes[s] += bytes[d].total();
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
      } else if (!is_there(n)) {
        for (int d : n.holders) main[d].push_back(static_cast<int>(i));
      }
    }
    auto by_order = [&](int a, int b) { return node(a).order < node(b).order; };
    for (auto& [key, nodes] : own) std::sort(nodes.begin(), nodes.end(), by_order);
    for (auto& [key, nodes] : main) std::sort(nodes.begin(), nodes.end(), by_order);
    for (std::size_t s = 0; s < plan_.streams.size(); ++s) {
      const PlanStream& stream = plan_.streams[s];
      std::vector<Queued> queue;
      if (stream.name == "main") {
        for (int i : main[stream.device]) queue.push_back({i, -1, stream.device, -1});
      } else {
        for (const StreamEntry& e : stream.entries) {
          bool first = true;
          for (int i : own[{places_.class_of(e.tower), e.epoch, e.phase}])
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

  /// By order: each reads what its own device has.
  void make_once() {
    std::vector<int> nodes;
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i)
      if (plan_.nodes[i].once) nodes.push_back(static_cast<int>(i));
    if (nodes.empty()) return;
    std::sort(nodes.begin(), nodes.end(), [&](int a, int b) { return node(a).order < node(b).order; });
    const std::vector<bool> kept = kept_values(plan_);
    for (int i : nodes)
      for (int d : node(i).holders) {
        const auto main = std::find_if(plan_.streams.begin(), plan_.streams.end(), [&](const PlanStream& s) { return s.device == d && s.name == "main"; });
        if (main == plan_.streams.end()) unbound(fmt::format("'{}' is in no stream", node(i).name));
        const Step& s = out_.once.emplace_back(step({i, -1, d, -1}, static_cast<int>(main - plan_.streams.begin()), 0));
        for (std::size_t k = 0; k < s.writes.size(); ++k)
          if (kept[static_cast<std::size_t>(node(i).outputs[k])])
            for (const Part& p : s.writes[k]) out_.kept.push_back(p.buffer);
      }
  }

  /// (tower, device) → steps on other devices that read its frame.
  void find_foreign_readers() {
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      if (n.scope != Scope::tower) continue;
      auto add = [&](ValueIndex v, bool copied) {
        for (int r : readers_[static_cast<std::size_t>(v)]) {
          const PlanNode& reader = node(r);
          if ((copied && reader.op == kCopy) || reader.scope != Scope::tower || (reader.vector == n.vector && instances_.copies(v).empty())) continue;
          for (int t = 0; t < plan_.present(); ++t) {
            int a = plan_.device_of(n, t), b = plan_.device_of(reader, t);
            if (a >= 0 && b >= 0 && a != b && (reader.op == kCopy || instances_.own(v, t, b).node == static_cast<int>(i))) foreign_[{t, a}].insert({r, t, b});
          }
        }
      };
      for (ValueIndex v : n.outputs) add(v, false);
      if (n.op == kCopy) add(copied_by(plan_, n), true);  // what it copies is what its readers name
    }
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
      out.at = start(device) + places_.at(w, 0, -1, device);
    } else {
      const Slot s = places_.slot(i, k, part, device);
      const bool fed = s.region == Slot::kFeed;
      out.at = (fed ? 0 : start(device)) + places_.at(s, n, part, device);
      if (fed) out.space = kFeedSpace;
    }
    return out;
  }

  /// What a tower has added up.
  Part sum(int i, int tower, int device) {
    const Accumulated& a = places_.stacks().of(node(i), tower);
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
      for (int t : places_.stacks().of(n, tower).reads) out.push_back(sum(i, t, device));
      out.push_back({tower, tower + 1, buffer(maker, k, tower, device)});
      return out;
    }
    if (joins && m.scope == Scope::device) {
      for (const Piece& p : places_.pieces(m.owners))
        if (takes_part(plan_, n, p.low, device)) out.push_back({p.low, p.high, buffer(maker, k, p.low, p.device)});
    } else if (joins && m.scope == Scope::tower) {
      for (int t = 0; t < plan_.present(); ++t)
        if (int e = plan_.device_of(m, t); e >= 0 && takes_part(plan_, n, t, device) && places_.stacks().is_joined(m, t)) out.push_back(accumulates(m) ? sum(maker, t, e) : Part{t, t + 1, buffer(maker, k, t, e)});
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
        if (m.scope == Scope::tower) unbound(fmt::format("'{}' waits for all that hold '{}', which is the towers'", n.name, m.name));
        for (int e : m.holders) out.emplace_back(maker, -1, e);
        return out;
      case Wait::kShared: {
        if (m.scope == Scope::tower || m.holders.empty()) unbound(fmt::format("'{}' waits for the shared '{}', which is not shared", n.name, m.name));
        auto at = moves_values(n) ? Instances::At{maker, instances_.moved_from(n, w.value, device)} : instances_.shared(w.value, device);
        if (!is_there(node(at.node))) out.emplace_back(at.node, -1, at.device);
        return out;
      }
      case Wait::kReaders:
        if (m.scope == Scope::tower) unbound(fmt::format("'{}' waits for who reads '{}', which is the towers'", n.name, m.name));
        break;
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
    for (const Wait& w : n.once ? std::vector<Wait>() : n.waits) {
      auto some = producers(q.node, w, q.tower, q.device);
      waited.insert(waited.end(), some.begin(), some.end());
    }
    if (q.after >= 0)
      if (auto f = foreign_.find({q.after, q.device}); f != foreign_.end()) waited.insert(waited.end(), f->second.begin(), f->second.end());
    std::map<int, int> furthest;
    for (const Producer& p : waited) {
      auto at = where_.find(p);
      if (at == where_.end()) unbound(fmt::format("'{}' of tower {} is in no stream", node(std::get<0>(p)).name, std::get<1>(p)));
      if (at->second.first == stream && at->second.second >= sequence && sequence) unbound(fmt::format("'{}' waits for '{}', which comes no earlier in its stream", n.name, node(std::get<0>(p)).name));
      if (at->second.first != stream) furthest[at->second.first] = std::max(furthest[at->second.first], at->second.second);
    }
    for (auto [s, count] : furthest) out.waits.push_back({s, count});
    std::vector<ValueIndex> read = values_read(n);
    out.reads.reserve(n.inputs.size()), out.writes.reserve(n.outputs.size());
    for (ValueIndex v : n.inputs) out.reads.push_back(std::count(read.begin(), read.end(), v) ? source(q.node, v, q.tower, q.device) : std::vector<Part>{});
    for (std::size_t k = 0; k < n.outputs.size(); ++k) {
      std::vector<Part> parts;
      if (n.scope == Scope::device) {
        for (const Piece& p : places_.pieces_on(n.owners, q.device)) parts.push_back({p.low, p.high, buffer(q.node, k, p.low, q.device)});
      } else if (accumulates(n)) {
        parts.push_back(sum(q.node, q.tower, q.device));
      } else if (plan_.value(n.outputs[k]).read) {
        parts.push_back({0, 1, buffer(q.node, k, q.tower, q.device)});
      }
      out.writes.push_back(std::move(parts));
    }
    out.variant = &places_.variant(q.node, q.tower, q.device);
    if (out.variant->scratch_bytes) {
      out.scratch.space = space_of_[static_cast<std::size_t>(q.device)];
      out.scratch.at = start(q.device) + places_.at(out.variant->scratch, n, n.scope == Scope::tower ? q.tower : -1, q.device);
      out.scratch.bytes = out.variant->scratch_bytes;
      out.scratch.tag = {-2, q.tower, q.device};
    }
    return out;
  }

  BoundPlan& out_;
  const PlacedGraph& plan_;
  Instances instances_;
  std::vector<std::vector<int>> readers_;
  BufferPlaces places_;
  std::map<ValueIndex, ValueIndex> variable_of_;
  std::vector<int> space_of_;
  std::map<Producer, std::pair<int, int>> where_;                                     // → stream, sequence
  std::map<std::pair<int, int>, std::set<Producer>> foreign_;
  std::vector<std::vector<Queued>> queues_;
};

BoundPlan::BoundPlan(const PlacedGraph& plan) : plan(plan) { Binder(*this).run(); }

}  // namespace belfry
