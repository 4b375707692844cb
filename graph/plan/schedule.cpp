#include <belfry/graph/plan/schedule.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include <belfry/graph/plan/small_steps.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Nodes whose outputs reach a tower node.
std::vector<bool> reaching_towers(const PlacedGraph& plan) {
  std::vector<bool> out(plan.nodes.size());
  for (std::size_t i = plan.nodes.size(); i-- > 0;) {
    const PlanNode& n = plan.nodes[i];
    if (n.scope == Scope::tower || out[i])
      for_values_read(n, [&](ValueIndex v) { out[static_cast<std::size_t>(plan.value(v).maker)] = true; });
  }
  return out;
}

using Buckets = std::map<int, int>;  // when the last of each is ready

/// Nodes that go to the end of a step; what reads one of those that stand together stands behind all of its level.
struct Late {
  std::vector<bool> nodes, together;
};

/// Epochs and readiness in list order, from a node on; late nodes are put into the epoch `last`, behind all others, and the sums of a bucket are
/// ready when the last is.
void set_epochs(PlacedGraph& plan, const Late& late, int last, const Buckets& buckets, std::vector<int>& ready, std::size_t from) {
  int behind = static_cast<int>(plan.nodes.size());
  for (std::size_t i = from; i < plan.nodes.size(); ++i) {
    PlanNode& n = plan.nodes[i];
    n.epoch = n.scope == Scope::tower ? 0 : -1;
    ready[i] = -1;
    for_values_read(n, [&](ValueIndex v) {
      const PlanNode& m = plan.maker(v);
      n.epoch = std::max(n.epoch, m.epoch + (n.scope == Scope::tower && m.scope != Scope::tower ? 1 : 0));
      const auto made = static_cast<std::size_t>(plan.value(v).maker);
      ready[i] = std::max(ready[i], ready[made] + (late.together[made] ? 1 : 0));
    });
    if (n.scope == Scope::tower) ready[i] = static_cast<int>(i);
    if (late.nodes[i]) n.epoch = std::max(n.epoch, last), ready[i] = std::max(ready[i], behind);
    if (auto b = n.bucket && is_op(n, kAggregate) ? buckets.find(n.bucket) : buckets.end(); b != buckets.end()) ready[i] = std::max(ready[i], b->second);
  }
}

}  // namespace

void set_order(PlacedGraph& plan) {
  std::vector<int> ready(plan.nodes.size());
  std::vector<bool> late(plan.nodes.size()), reaches;  // the second found when it is first asked for
  set_epochs(plan, {late, late}, 0, {}, ready, 0);
  int last = -1;
  for (const PlanNode& n : plan.nodes) last = std::max(last, n.epoch);
  auto reaches_towers = [&](std::size_t i) {
    if (reaches.empty()) reaches = reaching_towers(plan);
    return reaches[i];
  };
  // An update that could run before the towers waits for them: a step that fails on bad input then leaves the state untouched.
  for (auto [variable, u] : plan.updates) {
    auto maker = static_cast<std::size_t>(plan.value(u).maker);
    const PlanNode& n = plan.nodes[maker];
    if (n.scope != Scope::shared || is_op(n, kInput) || n.epoch >= last) continue;
    if (!reaches_towers(maker)) late[maker] = true;
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if ((is_op(plan.nodes[i], kStore) || is_op(plan.nodes[i], kAllGather)) && !plan.nodes[i].donates.empty()) late[i] = true;
  const std::vector<Small> small = small_steps(plan);
  std::vector<bool> together(small.size());
  for (std::size_t i = 0; i < small.size(); ++i) {
    if (small[i] == Small::update && !reaches_towers(i)) late[i] = together[i] = true;
    if (small[i] == Small::value) together[i] = true;
  }
  const Late all{std::move(late), std::move(together)};
  const auto first = [](const std::vector<bool>& nodes) { return std::find(nodes.begin(), nodes.end(), true) - nodes.begin(); };
  set_epochs(plan, all, last, {}, ready, static_cast<std::size_t>(std::min(first(all.nodes), first(all.together))));  // those before are as they were
  Buckets buckets;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (const PlanNode& n = plan.nodes[i]; n.bucket && is_op(n, kAggregate)) {
      int& last_ready = buckets.try_emplace(n.bucket, ready[i]).first->second;
      last_ready = std::max(last_ready, ready[i]);
    }
  const std::vector<int> alone = buckets.empty() ? std::vector<int>() : ready;
  if (!buckets.empty()) set_epochs(plan, all, last, buckets, ready, 0);
  // What a bucket's sums read comes before them, what gathers them behind them, then all else that is ready then. The sum whose parts
  // come last is first, and so is the gather of the sum that was last: then the others find all there.
  struct Place {
    std::int64_t when, bucket;  // epoch and when ready; what comes before what, and whose
    int alone, at, node;
    bool operator<(const Place& o) const {
      if (when != o.when) return when < o.when;
      if (bucket != o.bucket) return bucket < o.bucket;
      return alone != o.alone ? alone < o.alone : at < o.at;
    }
  };
  auto joined = [](std::int64_t high, int low) { return high * (std::int64_t{1} << 32) + low; };
  auto place = [&](std::size_t i) -> Place {
    const PlanNode& n = plan.nodes[i];
    const int at = static_cast<int>(i);
    const std::int64_t when = joined(n.once ? -2 : n.epoch, ready[i]);  // what is made once comes before all steps
    if (buckets.empty() || is_op(n, kPreAggregate) || !n.bucket) return {when, joined(buckets.empty() || is_op(n, kPreAggregate) ? 0 : 3, 0), 0, at, at};
    if (is_op(n, kAggregate)) return {when, joined(1, n.bucket), -alone[i], at, at};
    return {when, joined(2, n.bucket), alone[i], -at, at};
  };
  std::vector<Place> shared;
  shared.reserve(plan.nodes.size());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    plan.nodes[i].order = static_cast<int>(i);
    if (plan.nodes[i].scope != Scope::tower) shared.push_back(place(i));
  }
  std::sort(shared.begin(), shared.end());
  for (std::size_t k = 0; k < shared.size(); ++k) plan.nodes[static_cast<std::size_t>(shared[k].node)].order = static_cast<int>(k);
}

// ---------------------------------------------------------------- classes

namespace {

/// Per vector, whether tower nodes lie so: those that say who adds for whom alone tell no classes apart.
std::vector<char> vectors_of_nodes(const PlacedGraph& plan) {
  std::vector<char> out(plan.vectors.size());
  for (const PlanNode& n : plan.nodes)
    if (n.scope == Scope::tower && n.vector >= 0 && n.vector < static_cast<int>(out.size())) out[static_cast<std::size_t>(n.vector)] = 1;
  return out;
}

/// `spaces`: a number per device; equal for those of one space.
TowerClass class_of(const PlacedGraph& plan, int tower, const std::vector<int>& spaces, const std::vector<char>& of_nodes) {
  TowerClass c;
  c.share = plan.share(tower).rows;
  std::vector<int> device_number(spaces.size(), -1), space_number(spaces.size(), -1);
  int devices = 0, known_spaces = 0;
  for (std::size_t x = 0; x < plan.vectors.size(); ++x) {
    const int d = of_nodes[x] ? plan.vectors[x][static_cast<std::size_t>(tower)] : -1;
    LocalPlace& at = c.pattern.emplace_back();
    if (d < 0) continue;
    int &device = device_number[static_cast<std::size_t>(d)], &space = space_number[static_cast<std::size_t>(spaces[static_cast<std::size_t>(d)])];
    if (device < 0) {
      device = devices++;
      c.kinds.push_back(plan.cluster.devices[static_cast<std::size_t>(d)].id.kind);
    }
    if (space < 0) space = known_spaces++;
    at = {device, space};
  }
  return c;
}

}  // namespace

std::function<TowerClass(int)> classes_of_towers(const PlacedGraph& plan) {
  return [&plan, spaces = space_numbers(plan.cluster), of_nodes = vectors_of_nodes(plan)](int tower) { return class_of(plan, tower, spaces, of_nodes); };
}

void set_classes(PlacedGraph& plan) {
  plan.classes.clear();
  const auto class_of_tower = classes_of_towers(plan);
  for (int t = 0; t < plan.present(); ++t) {
    TowerClass c = class_of_tower(t);
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
  PhaseSetter(const PlacedGraph& plan, const Instances& instances, const NumberLists& readers, int tower)
      : plan_(plan), instances_(instances), readers_(readers), tower_(tower), phase_(plan.nodes.size(), -1), light_(plan.nodes.size(), false), early_(plan.nodes.size(), -1) {}

  std::vector<int> run() {
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i)
      if (plan_.nodes[i].scope == Scope::tower) forward(i);
    for (std::size_t i = plan_.nodes.size(); i-- > 0;)
      if (plan_.nodes[i].scope == Scope::tower && light_[i]) delay(i);
    if (plan_.placement.order != PhaseOrder::by_tower) delay_early();
    return phase_;
  }

 private:
  int device(const PlanNode& n) const { return plan_.device_of(n, tower_); }

  void forward(std::size_t i) {
    const PlanNode& n = plan_.nodes[i];
    int d = device(n), phase = 0;
    if (d < 0) return;
    bool light = !is_op(n, kCopy), early = light && n.role == Role::backward;
    for_values_read(n, [&](ValueIndex v) {
      if (plan_.maker(v).scope != Scope::tower) return;
      int m = plan_.value(v).maker, e = device(plan_.maker(v));
      if (!is_op(n, kCopy)) {
        auto at = instances_.own(v, tower_, d);
        m = at.node, e = at.device;
      }
      const PlanNode& maker = plan_.nodes[static_cast<std::size_t>(m)];
      bool turn = n.role == Role::backward && maker.role == Role::forward;
      if (maker.epoch == n.epoch) phase = std::max(phase, phase_[static_cast<std::size_t>(m)] + (e != d || turn ? 1 : 0));
      light = light && light_[static_cast<std::size_t>(m)] && e == d;
      early = early && e == d && maker.epoch == n.epoch && (maker.role == Role::forward || early_[static_cast<std::size_t>(m)] >= 0);
    });
    phase_[i] = phase;
    light_[i] = light;
    if (early && !light) early_[i] = static_cast<int>(i);
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

  int part(int i) {
    while (early_[static_cast<std::size_t>(i)] != i) i = early_[static_cast<std::size_t>(i)] = early_[static_cast<std::size_t>(early_[static_cast<std::size_t>(i)])];
    return i;
  }

  /// What backward computes of forward values alone waits, part by part, for its first reader, unless that keeps more bytes of every tower
  /// in flight.
  void delay_early() {
    const auto makers = [&](std::size_t i, auto f) { for_values_read(plan_.nodes[i], [&](ValueIndex v) { f(v, plan_.value(v).maker); }); };
    for (std::size_t i = 0; i < early_.size(); ++i)
      if (early_[i] >= 0)
        makers(i, [&](ValueIndex, int m) {
          if (early_[static_cast<std::size_t>(m)] >= 0) early_[static_cast<std::size_t>(part(m))] = part(static_cast<int>(i));
        });
    std::map<int, std::vector<std::size_t>> parts;
    for (std::size_t i = 0; i < early_.size(); ++i)
      if (early_[i] >= 0) parts[part(static_cast<int>(i))].push_back(i);
    for (const auto& [root, nodes] : parts) {
      std::set<ValueIndex> read, made;
      for (std::size_t i : nodes) {
        makers(i, [&, root = root](ValueIndex v, int m) {
          if (plan_.nodes[static_cast<std::size_t>(m)].scope == Scope::tower && (early_[static_cast<std::size_t>(m)] < 0 || part(m) != root)) read.insert(v);
        });
        for (ValueIndex v : plan_.nodes[i].outputs)
          if (plan_.value(v).read) made.insert(v);
      }
      int first = -1;
      std::int64_t out = 0, in = 0;
      bool can = true;
      for (ValueIndex v : made) {
        bool leaves = false;
        for (int r : readers_[static_cast<std::size_t>(v)]) {
          const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)];
          if (early_[static_cast<std::size_t>(r)] >= 0 && part(r) == root) continue;
          can = can && reader.scope == Scope::tower && reader.epoch == plan_.nodes[nodes[0]].epoch && device(reader) == device(plan_.nodes[nodes[0]]);
          first = first < 0 ? phase_[static_cast<std::size_t>(r)] : std::min(first, phase_[static_cast<std::size_t>(r)]);
          leaves = true;
        }
        if (leaves) out += bytes(v);
      }
      if (!can || first < 0) continue;
      for (ValueIndex v : read)
        if (!is_read_at(v, first, device(plan_.nodes[nodes[0]]))) in += bytes(v);
      for (std::size_t i : nodes)
        if (in <= out) phase_[i] = std::max(phase_[i], first);
    }
  }

  std::int64_t bytes(ValueIndex v) const { return local_bytes(plan_.value(v), plan_.share(tower_)); }

  /// Whether something outside the early parts reads a value on a device at a phase or later, or when it likes.
  bool is_read_at(ValueIndex v, int phase, int d) const {
    const auto& by = readers_[static_cast<std::size_t>(v)];
    return std::any_of(by.begin(), by.end(), [&](int r) {
      const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)];
      return reader.scope != Scope::tower || (early_[static_cast<std::size_t>(r)] < 0 && device(reader) == d && phase_[static_cast<std::size_t>(r)] >= phase);
    });
  }

  const PlacedGraph& plan_;
  const Instances& instances_;
  const NumberLists& readers_;
  int tower_;
  std::vector<int> phase_;
  std::vector<bool> light_;
  std::vector<int> early_;  ///< backward nodes that read forward values alone: another node of their part, in the end its root; else -1
};

}  // namespace

std::vector<std::vector<int>> phases_of(const PlacedGraph& plan, const Instances& instances, const NumberLists& readers) {
  std::vector<std::vector<int>> by_class;
  for (const TowerClass& c : plan.classes) by_class.push_back(PhaseSetter(plan, instances, readers, c.towers[0]).run());
  return by_class;
}

void set_phases(PlacedGraph& plan, const Instances& instances, const NumberLists& readers) {
  const std::vector<std::vector<int>> by_class = phases_of(plan, instances, readers);
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    plan.nodes[i].phases.clear();
    if (plan.nodes[i].scope == Scope::tower)
      for (const auto& phases : by_class) plan.nodes[i].phases.push_back(phases[i]);
  }
}

}  // namespace belfry
