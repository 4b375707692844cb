#include <belfry/graph/plan/verify.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/watcher.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

class Verifier {
 public:
  explicit Verifier(const PlacedGraph& plan) : plan_(plan), devices_(static_cast<int>(plan.cluster.devices.size())) {}

  std::vector<std::string> run() {
    check_nodes();
    if (!found_.empty()) return found_;  // what follows indexes by what was checked
    check_reads();
    check_sizes();
    if (!found_.empty()) return found_;
    check_copies();
    check_state();
    check_streams();
    if (!found_.empty()) return found_;
    try {
      BoundPlan bound(plan_);
      check_bytes(bound);
      if (found_.empty()) check_run(bound);
    } catch (const UserError& e) {
      found_.push_back(e.what());
    }
    return found_;
  }

 private:
  template <class... A>
  void object(fmt::format_string<A...> text, A&&... arguments) {
    if (found_.size() < 64) found_.push_back(fmt::format(text, std::forward<A>(arguments)...));
  }
  bool is_device(int d) const { return d >= 0 && d < devices_; }

  /// Every node with order, kernel, reason and devices that exist; inputs that are made; every value made once.
  void check_nodes() {
    std::set<std::pair<bool, int>> orders;
    std::vector<int> made(plan_.values.size());
    auto is_value = [&](ValueIndex v) { return v >= 0 && v < static_cast<int>(plan_.values.size()); };
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i)
      for (std::size_t k = 0; k < plan_.nodes[i].outputs.size(); ++k) {
        ValueIndex v = plan_.nodes[i].outputs[k];
        if (!is_value(v)) object("dangling: '{}' makes no value", plan_.nodes[i].name);
        else if (made[static_cast<std::size_t>(v)]++) object("made twice: '{}'", plan_.value(v).name);
        else if (plan_.value(v).maker != static_cast<int>(i)) object("made twice: '{}' names another maker", plan_.value(v).name);
      }
    for (const PlanNode& n : plan_.nodes) {
      check_node(n);
      if (n.order < 0 || !orders.insert({n.scope == Scope::tower, n.order}).second) object("no order of its own: '{}'", n.name);
      for (ValueIndex v : n.inputs)
        if (v != -1 && (!is_value(v) || !made[static_cast<std::size_t>(v)])) object("dangling: '{}' reads a value that nothing makes", n.name);
      for (auto [u, variable] : n.donates)
        if (!is_value(u) || !is_value(variable)) object("dangling: '{}' donates what is not there", n.name);
    }
    for (const auto& [name, v] : plan_.fetches)
      if (!is_value(v) || !made[static_cast<std::size_t>(v)]) object("dangling: fetch '{}'", name);
    if (plan_.frames.size() != plan_.cluster.devices.size()) object("memory: there are {} frames for {} devices", plan_.frames.size(), plan_.cluster.devices.size());
    for (const TowerClass& c : plan_.classes)
      if (c.pattern.size() != plan_.vectors.size()) object("no device: a class speaks of {} of {} vectors", c.pattern.size(), plan_.vectors.size());
    for (const auto& v : plan_.vectors)
      if (static_cast<int>(v.size()) != plan_.towers) object("no device: a vector speaks of {} of {} towers", v.size(), plan_.towers);
  }

  void check_node(const PlanNode& n) {
    if (n.reason.empty()) object("no reason: '{}'", n.name);
    if (n.inserted && n.user < 0) object("no cause: '{}'", n.name);
    if (n.scope == Scope::tower) {
      if (n.vector < 0 || n.vector >= static_cast<int>(plan_.vectors.size())) return object("no device: '{}'", n.name);
      if (n.phases.size() != plan_.classes.size()) return object("phase: '{}' has {} phases for {} classes", n.name, n.phases.size(), plan_.classes.size());
      for (int d : plan_.devices(n))
        if (d != -1 && !is_device(d)) return object("no device: '{}'", n.name);
      for (std::size_t c = 0; c < plan_.classes.size(); ++c)
        if (n.phases[c] >= 0 && (c >= n.by_class.size() || n.by_class[c].kernel.empty())) object("no kernel: '{}'", n.name);
    } else {
      if (n.scope == Scope::device && (n.owners < 0 || n.owners >= static_cast<int>(plan_.vectors.size()))) return object("unbound: '{}' joins the towers of no devices", n.name);
      if (n.holders.empty()) return object("no device: '{}'", n.name);
      for (int d : n.holders)
        if (!is_device(d)) return object("no device: '{}'", n.name);
      for (std::size_t g = 0; g < plan_.groups.size(); ++g)
        for (int d : n.holders)
          if (std::find(plan_.groups[g].devices.begin(), plan_.groups[g].devices.end(), d) != plan_.groups[g].devices.end() && n.scope != Scope::state &&
              (g >= n.by_group.size() || n.by_group[g].kernel.empty()))
            return object("no kernel: '{}'", n.name);
    }
  }

  /// Outside the towers only joins read what each tower has.
  void check_reads() {
    for (const PlanNode& n : plan_.nodes) {
      if (n.scope == Scope::tower || is_join(n) || n.op == kPreAggregate) continue;
      for (ValueIndex v : n.inputs)
        if (v >= 0 && plan_.maker(v).scope == Scope::tower) object("no device: '{}' is outside the towers, but reads '{}' of every tower", n.name, plan_.value(v).name);
    }
  }

  /// Sums of sizes stay inside what a device has, so that no address overflows.
  void check_sizes() {
    std::vector<__int128> total(plan_.cluster.devices.size());
    auto add = [&](int d, std::int64_t count, std::int64_t bytes) {
      if (!is_device(d)) return object("memory: device {} is not there", d);
      if (count < 0 || bytes < 0) return object("memory: a size of {} is negative", to_string(plan_.cluster.devices[static_cast<std::size_t>(d)].id));
      total[static_cast<std::size_t>(d)] += static_cast<__int128>(count) * bytes;
    };
    for (const DeviceGroup& g : plan_.groups)
      for (int d : g.devices) {
        add(d, 1, g.state);
        add(d, 1, g.region);
      }
    for (const PlanStream& s : plan_.streams) {
      if (!is_device(s.device)) return object("stream of another device: '{}'", s.name);
      const FrameSize& f = plan_.frames[static_cast<std::size_t>(s.device)];
      add(s.device, s.slots, f.kept);
      add(s.device, 1, f.transient);
    }
    for (std::size_t d = 0; d < total.size(); ++d)
      if (total[d] > plan_.cluster.devices[d].memory)
        object("memory: {} needs more than its {} bytes", to_string(plan_.cluster.devices[d].id), plan_.cluster.devices[d].memory);
  }

  /// One copy per value and destination, only where a space lacks the value, over a link that exists.
  void check_copies() {
    std::set<std::tuple<ValueIndex, int, std::string>> destinations;
    auto space = [&](int d) { return plan_.cluster.space(d); };
    for (const PlanNode& n : plan_.nodes) {
      if (n.op != kCopy) continue;
      if (n.inputs.size() != 1 || n.inputs[0] < 0) {
        object("dangling: the copy '{}' reads nothing", n.name);
        continue;
      }
      const PlanNode& m = plan_.maker(n.inputs[0]);
      auto check = [&](int tower, int from, int to, bool held) {
        if (from < 0 || to < 0) return;
        if (!destinations.insert({n.inputs[0], tower, space(to)}).second) object("two copies: '{}' to {}", plan_.value(n.inputs[0]).name, space(to));
        if (held) object("needless copy: '{}' inside {}", n.name, space(to));
        if (!plan_.cluster.linked(space(from), space(to))) object("no link: '{}' from {} to {}", n.name, space(from), space(to));
      };
      if (n.scope == Scope::tower && m.scope == Scope::tower) {
        for (int t = 0; t < plan_.present(); ++t) {
          int a = plan_.device_of(m, t), b = plan_.device_of(n, t);
          if (a >= 0 && b >= 0) check(t, a, b, space(a) == space(b));
        }
      } else if (m.scope != Scope::tower) {
        for (int d : n.holders) check(-1, m.holders[0], d, std::any_of(m.holders.begin(), m.holders.end(), [&](int h) { return space(h) == space(d); }));
      } else {
        object("no device: the copy '{}' of a tower's value is not the tower's", n.name);
      }
    }
  }

  /// Each variable is written once, on the devices that hold it.
  void check_state() {
    std::map<ValueIndex, int> writers;
    for (const PlanNode& n : plan_.nodes)
      for (auto [u, variable] : n.donates) {
        ++writers[variable];
        const PlanNode& w = plan_.maker(variable);
        const std::string& name = plan_.value(variable).name;
        if (w.scope != Scope::state) object("state: '{}' is no variable", name);
        else if (w.holders != n.holders) object("state: '{}' is written on other devices than hold it", name);
        if (std::none_of(plan_.updates.begin(), plan_.updates.end(), [&, v = variable](auto p) { return p.first == v; })) object("state: '{}' has no update", name);
        if (std::find(n.outputs.begin(), n.outputs.end(), u) == n.outputs.end()) object("state: '{}' donates what it does not make", n.name);
      }
    for (auto [variable, u] : plan_.updates)
      if (writers[variable] != 1) object("state: '{}' is written {} times", plan_.value(variable).name, writers[variable]);
  }

  /// Every phase of every tower once, on a stream of its device; a main stream per device.
  void check_streams() {
    std::map<int, std::size_t> class_of;
    for (std::size_t c = 0; c < plan_.classes.size(); ++c)
      for (int t : plan_.classes[c].towers) class_of[t] = c;
    std::set<std::tuple<int, int, int, int>> due;
    std::map<std::tuple<int, int, int, int>, int> done;
    for (const PlanNode& n : plan_.nodes)
      if (n.scope == Scope::tower)
        for (int t = 0; t < plan_.present(); ++t) {
          if (!class_of.contains(t)) return object("phase: tower {} is in no class", t);
          if (int d = plan_.device_of(n, t); d >= 0) due.insert({t, d, n.epoch, n.phases[class_of[t]]});
        }
    for (const PlanStream& s : plan_.streams) {
      if (!is_device(s.device)) return object("stream of another device: '{}'", s.name);
      if (s.name == "main" && !s.entries.empty()) object("phase: the main stream of a device runs towers");
      for (const StreamEntry& e : s.entries) {
        std::tuple key{e.tower, s.device, e.epoch, e.phase};
        if (!due.contains(key)) object("stream of another device: phase ({}, {}) of tower {} does not run on {}", e.epoch, e.phase, e.tower, to_string(plan_.cluster.devices[static_cast<std::size_t>(s.device)].id));
        if (e.slot < 0 || e.slot >= s.slots) object("outside: slot {} of a stream of {}", e.slot, s.slots);
        if (e.after >= plan_.present() || e.after < -1) object("phase: tower {} follows tower {}, which is not there", e.tower, e.after);
        ++done[key];
      }
    }
    for (const auto& key : due)
      if (done[key] != 1)
        object("phase ({}, {}) of tower {} runs {} times on {}", std::get<2>(key), std::get<3>(key), std::get<0>(key), done[key], to_string(plan_.cluster.devices[static_cast<std::size_t>(std::get<1>(key))].id));
    std::map<int, int> mains;
    for (const PlanStream& s : plan_.streams) mains[s.device] += s.name == "main";
    for (auto [d, n] : mains)
      if (n > 1) object("phase: device {} has {} main streams", d, n);
    std::set<int> used;
    for (const PlanNode& n : plan_.nodes)
      if (n.scope == Scope::shared || n.scope == Scope::device) used.insert(n.holders.begin(), n.holders.end());
    for (int d : used)
      if (!mains[d]) object("phase: {} has no main stream for what is outside the towers", to_string(plan_.cluster.devices[static_cast<std::size_t>(d)].id));
  }

  /// Every buffer inside its device's part of the arena, aligned; no device over its memory.
  void check_bytes(const BoundPlan& bound) {
    for (std::size_t d = 0; d < plan_.cluster.devices.size(); ++d)
      if (bound.device_bytes[d] > plan_.cluster.devices[d].memory)
        object("memory: {} needs {} of {} bytes", to_string(plan_.cluster.devices[d].id), bound.device_bytes[d], plan_.cluster.devices[d].memory);
    auto check = [&](const BufferRef& b, int device, const std::string& name) {
      auto d = static_cast<std::size_t>(device);
      if (b.space == kFeedSpace) return;
      if (b.at % kAlignment) object("alignment: '{}' lies at byte {}", name, b.at);
      if (b.at < bound.device_start[d] || b.at + b.bytes > bound.device_start[d] + bound.device_bytes[d]) object("outside: '{}' leaves the arena of {}", name, to_string(plan_.cluster.devices[d].id));
    };
    for (const auto& stream : bound.streams)
      for (const Step& s : stream) {
        for (const auto& parts : s.writes)
          for (const Part& p : parts) check(p.buffer, s.device, plan_.value(p.buffer.tag.value).name);
        if (s.scratch.bytes) check(s.scratch, s.device, plan_.nodes[static_cast<std::size_t>(s.node)].name + " (scratch)");
      }
    for (const StateBuffer& s : bound.state) check(s.buffer, s.device, plan_.nodes[static_cast<std::size_t>(s.node)].name);
  }

  /// One legal order with vector clocks speaks for all orders.
  void check_run(const BoundPlan& bound) {
    std::vector<std::string> stuck;
    auto order = legal_order(bound, &stuck);
    if (!stuck.empty()) return object("stuck: {} wait for each other", fmt::join(stuck, ", "));
    Watcher watcher(bound);
    for (auto [s, k] : order) watcher.begin(bound.streams[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)]);
    found_.insert(found_.end(), watcher.found().begin(), watcher.found().end());
    if (!found_.empty()) return;
    for (const StateBuffer& s : bound.state) {
      Tag last = s.buffer.tag;
      for (const PlanNode& n : plan_.nodes)
        for (auto [u, variable] : n.donates)
          if (variable == s.buffer.tag.value) last.value = u;
      if (!watcher.holds(s.buffer, last)) object("overlap: '{}' is overwritten", plan_.value(s.buffer.tag.value).name);
    }
  }

  const PlacedGraph& plan_;
  int devices_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> verify(const PlacedGraph& plan) { return Verifier(plan).run(); }

}  // namespace belfry
