#include <belfry/graph/plan/schedule.h>

#include <algorithm>
#include <map>
#include <set>

#include <belfry/graph/structural.h>

namespace belfry {

std::tuple<int, int, int> phase_key(PhaseOrder order, int epoch, int phase, int tower) {
  if (order == PhaseOrder::gpipe) return {epoch, phase, tower};
  if (order == PhaseOrder::one_f_one_b) return {epoch, 2 * tower + phase, -phase};
  return {epoch, tower, phase};
}

namespace {

/// Nodes whose outputs reach a tower node.
std::vector<bool> reaching_towers(const PlacedGraph& plan) {
  std::vector<bool> out(plan.nodes.size());
  for (std::size_t i = plan.nodes.size(); i-- > 0;) {
    const PlanNode& n = plan.nodes[i];
    if (n.scope == Scope::tower || out[i])
      for (ValueIndex v : values_read(n)) out[static_cast<std::size_t>(plan.value(v).maker)] = true;
  }
  return out;
}

/// Epochs and readiness in list order; `late` nodes are put into the epoch `last`, behind all others.
void set_epochs(PlacedGraph& plan, const std::vector<bool>& late, int last, std::vector<int>& ready) {
  int behind = static_cast<int>(plan.nodes.size());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    PlanNode& n = plan.nodes[i];
    n.epoch = n.scope == Scope::tower ? 0 : -1;
    ready[i] = -1;
    for (ValueIndex v : values_read(n)) {
      const PlanNode& m = plan.maker(v);
      n.epoch = std::max(n.epoch, m.epoch + (n.scope == Scope::tower && m.scope != Scope::tower ? 1 : 0));
      ready[i] = std::max(ready[i], ready[static_cast<std::size_t>(plan.value(v).maker)]);
    }
    if (n.scope == Scope::tower) ready[i] = static_cast<int>(i);
    if (late[i]) n.epoch = std::max(n.epoch, last), ready[i] = behind;
  }
}

}  // namespace

void set_order(PlacedGraph& plan) {
  std::vector<int> ready(plan.nodes.size());
  std::vector<bool> late(plan.nodes.size()), reaches = reaching_towers(plan);
  set_epochs(plan, late, 0, ready);
  int last = -1;
  for (const PlanNode& n : plan.nodes) last = std::max(last, n.epoch);
  // An update that could run before the towers waits for them: a step that fails on bad input then leaves the state untouched.
  for (auto [variable, u] : plan.updates) {
    auto maker = static_cast<std::size_t>(plan.value(u).maker);
    const PlanNode& n = plan.nodes[maker];
    if (n.scope == Scope::shared && n.op != kInput && n.epoch < last && !reaches[maker]) late[maker] = true;
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (plan.nodes[i].op == kStore && !plan.nodes[i].donates.empty()) late[i] = true;
  set_epochs(plan, late, last, ready);
  std::vector<std::size_t> shared;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    plan.nodes[i].order = static_cast<int>(i);
    if (plan.nodes[i].scope != Scope::tower) shared.push_back(i);
  }
  std::sort(shared.begin(), shared.end(), [&](std::size_t a, std::size_t b) {
    return std::tuple(plan.nodes[a].epoch, ready[a], a) < std::tuple(plan.nodes[b].epoch, ready[b], b);
  });
  for (std::size_t k = 0; k < shared.size(); ++k) plan.nodes[shared[k]].order = static_cast<int>(k);
}

// ---------------------------------------------------------------- classes

namespace {

/// A tower's devices numbered by first appearance, per vector.
std::vector<LocalPlace> pattern_of(const PlacedGraph& plan, int tower) {
  std::map<int, int> devices;
  std::map<std::string, int> spaces;
  std::vector<LocalPlace> out;
  for (const auto& v : plan.vectors) {
    int d = v[static_cast<std::size_t>(tower)];
    if (d < 0) out.push_back({});
    else out.push_back({devices.try_emplace(d, static_cast<int>(devices.size())).first->second, spaces.try_emplace(plan.cluster.space(d), static_cast<int>(spaces.size())).first->second});
  }
  return out;
}

}  // namespace

TowerClass class_of_tower(const PlacedGraph& plan, int tower) {
  TowerClass c;
  c.share = plan.share(tower).rows;
  std::set<int> seen;
  for (const auto& v : plan.vectors)
    if (int d = v[static_cast<std::size_t>(tower)]; d >= 0 && seen.insert(d).second) c.kinds.push_back(plan.cluster.devices[static_cast<std::size_t>(d)].id.kind);
  c.pattern = pattern_of(plan, tower);
  return c;
}

void set_classes(PlacedGraph& plan) {
  plan.classes.clear();
  for (int t = 0; t < plan.present(); ++t) {
    TowerClass c = class_of_tower(plan, t);
    auto known = std::find_if(plan.classes.begin(), plan.classes.end(), [&](const TowerClass& k) { return k.share == c.share && k.kinds == c.kinds && k.pattern == c.pattern; });
    if (known == plan.classes.end()) known = plan.classes.insert(known, std::move(c));
    known->towers.push_back(t);
  }
}

// ---------------------------------------------------------------- phases

namespace {

/// Phases of all tower nodes for one class.
class PhaseSetter {
 public:
  PhaseSetter(PlacedGraph& plan, const Instances& instances, const std::vector<std::vector<int>>& readers, int tower)
      : plan_(plan), instances_(instances), readers_(readers), tower_(tower), phase_(plan.nodes.size(), -1), light_(plan.nodes.size(), false) {}

  std::vector<int> run() {
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i)
      if (plan_.nodes[i].scope == Scope::tower) forward(i);
    for (std::size_t i = plan_.nodes.size(); i-- > 0;)
      if (plan_.nodes[i].scope == Scope::tower && light_[i]) delay(i);
    return phase_;
  }

 private:
  int device(const PlanNode& n) const { return plan_.device_of(n, tower_); }

  void forward(std::size_t i) {
    const PlanNode& n = plan_.nodes[i];
    int d = device(n), phase = 0;
    if (d < 0) return;
    bool light = n.op != kCopy;
    for (ValueIndex v : values_read(n)) {
      if (plan_.maker(v).scope != Scope::tower) continue;
      int m = plan_.value(v).maker, e = device(plan_.maker(v));
      if (n.op != kCopy) {
        auto at = instances_.own(v, tower_, d);
        m = at.node, e = at.device;
      }
      const PlanNode& maker = plan_.nodes[static_cast<std::size_t>(m)];
      bool turn = n.role == Role::backward && maker.role == Role::forward;
      if (maker.epoch == n.epoch) phase = std::max(phase, phase_[static_cast<std::size_t>(m)] + (e != d || turn ? 1 : 0));
      light = light && light_[static_cast<std::size_t>(m)] && e == d;
    }
    phase_[i] = phase;
    light_[i] = light;
  }

  /// What depends on sources alone waits for its first reader.
  void delay(std::size_t i) {
    const PlanNode& n = plan_.nodes[i];
    int earliest = -1;
    for (ValueIndex v : n.outputs)
      for (int r : readers_[static_cast<std::size_t>(v)]) {
        const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)];
        if (reader.scope != Scope::tower || (phase_[static_cast<std::size_t>(r)] >= 0 && reader.epoch != n.epoch)) return;
        if (phase_[static_cast<std::size_t>(r)] < 0) continue;
        int latest = phase_[static_cast<std::size_t>(r)] - (device(reader) != device(n) ? 1 : 0);
        earliest = earliest < 0 ? latest : std::min(earliest, latest);
      }
    if (earliest >= 0) phase_[i] = std::max(phase_[i], earliest);
  }

  PlacedGraph& plan_;
  const Instances& instances_;
  const std::vector<std::vector<int>>& readers_;
  int tower_;
  std::vector<int> phase_;
  std::vector<bool> light_;
};

}  // namespace

void set_phases(PlacedGraph& plan) {
  Instances instances(plan);
  auto readers = readers_of(plan);
  std::vector<std::vector<int>> by_class;
  for (const TowerClass& c : plan.classes) by_class.push_back(PhaseSetter(plan, instances, readers, c.towers[0]).run());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    plan.nodes[i].phases.clear();
    if (plan.nodes[i].scope == Scope::tower)
      for (const auto& phases : by_class) plan.nodes[i].phases.push_back(phases[i]);
  }
}

// ---------------------------------------------------------------- streams

namespace {

using Phase = std::pair<int, int>;                              // epoch, phase
using PhaseTable = std::map<std::pair<int, int>, std::set<Phase>>;  // class, local device → phases

PhaseTable phases_by_device(const PlacedGraph& plan) {
  PhaseTable out;
  for (const PlanNode& n : plan.nodes)
    if (n.scope == Scope::tower)
      for (std::size_t c = 0; c < plan.classes.size(); ++c)
        if (n.phases[c] >= 0) out[{static_cast<int>(c), plan.classes[c].pattern[static_cast<std::size_t>(n.vector)].device}].insert({n.epoch, n.phases[c]});
  return out;
}

/// Phases on other devices that read a tower's frame on a device.
PhaseTable foreign_phases(const PlacedGraph& plan) {
  PhaseTable out;
  auto readers = readers_of(plan);
  for (const PlanNode& n : plan.nodes) {
    if (n.scope != Scope::tower) continue;
    bool copy = n.op == kCopy;  // inputs name values, never copies: a copy is read by readers of what it copies
    for (ValueIndex v : copy ? n.inputs : n.outputs)
      for (int i : readers[static_cast<std::size_t>(v)]) {
        const PlanNode& r = plan.nodes[static_cast<std::size_t>(i)];
        if (r.scope != Scope::tower || (copy && r.op == kCopy)) continue;
        for (std::size_t c = 0; c < plan.classes.size(); ++c) {
          LocalPlace a = plan.classes[c].pattern[static_cast<std::size_t>(n.vector)], b = plan.classes[c].pattern[static_cast<std::size_t>(r.vector)];
          if (a.device >= 0 && b.device >= 0 && a.device != b.device && (r.op == kCopy || a.space == b.space)) out[{static_cast<int>(c), a.device}].insert({r.epoch, r.phases[c]});
        }
      }
  }
  return out;
}

struct TowerOnDevice {
  int tower = 0, cls = 0, local = 0;
};

/// A tower holds a slot from its first phase on the stream to the last phase, here or of a foreign reader.
void give_slots(PlanStream& stream, PhaseOrder order, const std::map<int, std::tuple<int, int, int>>& release) {
  std::map<int, int> slot;                       // held, by tower
  std::vector<std::pair<int, int>> free;         // slot, tower that left it
  for (StreamEntry& e : stream.entries) {
    auto key = phase_key(order, e.epoch, e.phase, e.tower);
    for (auto at = slot.begin(); at != slot.end();) {
      if (release.at(at->first) < key) {
        free.emplace_back(at->second, at->first);
        at = slot.erase(at);
      } else ++at;
    }
    if (!slot.contains(e.tower)) {
      if (free.empty()) slot[e.tower] = stream.slots++;
      else {
        slot[e.tower] = free.back().first;
        e.after = free.back().second;
        free.pop_back();
      }
    }
    e.slot = slot[e.tower];
  }
}

}  // namespace

void set_streams(PlacedGraph& plan) {
  PhaseTable phases = phases_by_device(plan), foreign = foreign_phases(plan);
  std::map<int, std::map<int, TowerOnDevice>> where;  // device → tower
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (int t : plan.classes[c].towers)
      for (std::size_t x = 0; x < plan.vectors.size(); ++x) {
        int local = plan.classes[c].pattern[x].device;
        if (local >= 0 && phases.contains({static_cast<int>(c), local})) where[plan.vectors[x][static_cast<std::size_t>(t)]][t] = {t, static_cast<int>(c), local};
      }
  plan.streams.clear();
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) plan.streams.push_back({static_cast<int>(d), "main", {}, 0, 0});
  for (const auto& [device, towers] : where) {
    std::vector<TowerOnDevice> mine;
    for (const auto& [t, x] : towers) mine.push_back(x);
    std::size_t count = std::min<std::size_t>(static_cast<std::size_t>(plan.cluster.devices[static_cast<std::size_t>(device)].streams), mine.size());
    for (std::size_t s = 0; s < count; ++s) {
      PlanStream stream{device, "tower" + std::to_string(s), {}, 0, 0};
      std::map<int, std::tuple<int, int, int>> release;
      for (std::size_t i = s; i < mine.size(); i += count) {
        const TowerOnDevice& x = mine[i];
        std::tuple<int, int, int> last{-1, 0, 0};
        for (auto [e, h] : phases[{x.cls, x.local}]) {
          stream.entries.push_back({x.tower, e, h, 0, -1});
          last = std::max(last, phase_key(plan.placement.order, e, h, x.tower));
        }
        if (auto f = foreign.find({x.cls, x.local}); f != foreign.end())
          for (auto [e, h] : f->second) last = std::max(last, phase_key(plan.placement.order, e, h, x.tower));
        release[x.tower] = last;
      }
      std::sort(stream.entries.begin(), stream.entries.end(), [&](const StreamEntry& a, const StreamEntry& b) {
        return phase_key(plan.placement.order, a.epoch, a.phase, a.tower) < phase_key(plan.placement.order, b.epoch, b.phase, b.tower);
      });
      give_slots(stream, plan.placement.order, release);
      plan.streams.push_back(std::move(stream));
    }
  }
  // Host threads: at most cores / threads-per-tower run at once; a device's main stream shares the thread of its first tower stream.
  int threads = std::max(1, plan.cluster.cores / std::max(1, plan.threads));
  std::map<int, int> of_device;
  int next = 0;
  for (PlanStream& s : plan.streams)
    if (s.name != "main") {
      s.thread = next++ % threads;
      of_device.try_emplace(s.device, s.thread);
    }
  for (PlanStream& s : plan.streams)
    if (s.name == "main") s.thread = of_device.contains(s.device) ? of_device[s.device] : 0;
}

// ---------------------------------------------------------------- waits

namespace {

/// Folded vector clocks: per kind of producer the furthest node that an earlier node of the same stream waited for.
class Waiter {
 public:
  explicit Waiter(PlacedGraph& plan) : plan_(plan), instances_(plan) {}

  void run() {
    std::vector<std::size_t> order(plan_.nodes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return mark(plan_.nodes[a]) < mark(plan_.nodes[b]); });
    for (std::size_t i : order) {
      PlanNode& n = plan_.nodes[i];
      n.waits.clear();
      std::set<ValueIndex> seen;
      for (ValueIndex v : values_read(n))
        if (seen.insert(v).second) wait_for(n, v);
      for (auto [u, variable] : n.donates) n.waits.push_back({Wait::kReaders, variable});
    }
  }

 private:
  using Mark = std::vector<int>;
  static Mark mark(const PlanNode& n) {
    Mark out = {n.epoch};
    out.insert(out.end(), n.phases.begin(), n.phases.end());
    out.push_back(n.order);
    return out;
  }
  static bool covered_by(const Mark& a, const Mark& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i] > b[i]) return false;
    return true;
  }

  /// What distinguishes producers whose waits cover each other.
  std::vector<int> place(const PlanNode& n) const {
    std::vector<int> out = {n.scope == Scope::tower ? n.vector : -2};
    out.insert(out.end(), n.holders.begin(), n.holders.end());
    return out;
  }

  /// Moves read the maker's instance, all others the one that serves their device.
  static bool reads_maker(const PlanNode& n) { return n.op == kCopy || n.op == kSplit || n.op == kPreAggregate || is_join(n); }

  void add(PlanNode& n, Wait::Relation relation, ValueIndex v, std::vector<std::vector<int>> kind) {
    kind.push_back(place(n));
    kind.push_back({static_cast<int>(relation)});
    Mark at = mark(n), of = mark(plan_.maker(v));
    // Which instance is meant depends on the device: all of them must be covered.
    if (!reads_maker(n))
      for (int c : instances_.copies(v)) {
        Mark copy = mark(plan_.nodes[static_cast<std::size_t>(c)]);
        of.insert(of.end(), copy.begin(), copy.end());
      }
    auto& waited = seen_[kind];
    for (const auto& [earlier, producer] : waited)
      if (covered_by(earlier, at) && covered_by(of, producer)) return;
    waited.emplace_back(at, of);
    n.waits.push_back({relation, v});
  }

  void wait_for(PlanNode& n, ValueIndex v) {
    const PlanNode& m = plan_.maker(v);
    const std::vector<int>& copies = instances_.copies(v);
    std::vector<std::vector<int>> kind = {place(m), {reads_maker(n)}};
    for (int c : copies) kind.push_back(place(plan_.nodes[static_cast<std::size_t>(c)]));
    if (n.scope == Scope::tower && m.scope == Scope::tower) {
      if (m.vector != n.vector || !copies.empty()) add(n, Wait::kOwn, v, kind);
    } else if (m.scope == Scope::tower) add(n, n.op == kPreAggregate ? Wait::kLocal : Wait::kTowers, v, kind);
    else if (m.scope == Scope::device) add(n, Wait::kEvery, v, kind);
    else if (m.scope == Scope::state && (copies.empty() || n.op == kCopy || n.op == kSplit)) return;
    else if (n.scope == Scope::tower || !std::includes(sorted(m.holders).begin(), sorted(m.holders).end(), sorted(n.holders).begin(), sorted(n.holders).end())) {
      kind.push_back({static_cast<int>(m.scope)});
      add(n, Wait::kShared, v, kind);
    }
  }

  const std::vector<int>& sorted(const std::vector<int>& v) {
    auto [at, fresh] = sorted_.try_emplace(v, v);
    if (fresh) std::sort(at->second.begin(), at->second.end());
    return at->second;
  }

  PlacedGraph& plan_;
  Instances instances_;
  std::map<std::vector<std::vector<int>>, std::vector<std::pair<Mark, Mark>>> seen_;
  std::map<std::vector<int>, std::vector<int>> sorted_;
};

}  // namespace

void set_waits(PlacedGraph& plan) { Waiter(plan).run(); }

}  // namespace belfry
