#include <belfry/graph/plan/verify.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/graph/plan/verify_types.h>
#include <belfry/graph/plan/watcher.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  // sums of what is below it do not overflow

class Verifier {
 public:
  explicit Verifier(const PlacedGraph& plan) : plan_(plan), devices_(static_cast<int>(plan.cluster.devices.size())) {}

  std::vector<std::string> run() {
    check_tables();
    if (found_.empty()) check_values();
    if (found_.empty()) check_nodes();
    if (found_.empty()) check_types(plan_, found_);
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
      check_joins(bound);
      if (found_.empty()) check_run(bound);
    } catch (const UserError& e) {
      found_.push_back(e.what());
    } catch (const std::exception& e) {
      object("unbound: {}", e.what());
    }
    return found_;
  }

 private:
  template <class... A>
  void object(fmt::format_string<A...> text, A&&... arguments) {
    if (found_.size() < 64) found_.push_back(fmt::format(text, std::forward<A>(arguments)...));
  }
  bool is_device(int d) const { return d >= 0 && d < devices_; }
  bool is_value(ValueIndex v) const { return v >= 0 && v < static_cast<int>(plan_.values.size()); }
  std::string name_of(int device) const { return to_string(plan_.cluster.devices[static_cast<std::size_t>(device)].id); }
  static bool sizes_fit(std::initializer_list<std::int64_t> sizes) {
    return std::all_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n >= 0 && n <= kMostBytes && n % kAlignment == 0; });
  }

  /// Vectors, classes, groups, frames and streams speak of towers and devices that are there.
  void check_tables() {
    if (plan_.towers < 1 || plan_.batch < 1) return object("phase: {} towers share {} rows", plan_.towers, plan_.batch);
    for (const auto& v : plan_.vectors) {
      if (static_cast<int>(v.size()) != plan_.towers) object("no device: a vector speaks of {} of {} towers", v.size(), plan_.towers);
      for (int d : v)
        if (d != -1 && !is_device(d)) object("no device: a vector names device {} of {}", d, devices_);
    }
    if (!found_.empty()) return;
    check_classes();
    std::vector<int> groups(plan_.cluster.devices.size());
    for (const DeviceGroup& g : plan_.groups) {
      if (!sizes_fit({g.state, g.region})) object("memory: a group has {} bytes of state and a region of {}", g.state, g.region);
      for (int d : g.devices)
        if (!is_device(d)) object("unbound: a group names device {} of {}", d, devices_);
        else ++groups[static_cast<std::size_t>(d)];
    }
    for (std::size_t d = 0; d < groups.size(); ++d)
      if (groups[d] != 1) object("unbound: {} is in {} groups", name_of(static_cast<int>(d)), groups[d]);
    if (plan_.frames.size() != plan_.cluster.devices.size()) object("memory: there are {} frames for {} devices", plan_.frames.size(), plan_.cluster.devices.size());
    for (const FrameSize& f : plan_.frames)
      if (!sizes_fit({f.kept, f.transient})) object("memory: a frame has {} kept and {} transient bytes", f.kept, f.transient);
    for (const PlanStream& s : plan_.streams) {
      if (!is_device(s.device)) object("stream of another device: '{}' is a stream of device {} of {}", s.name, s.device, devices_);
      if (s.thread < 0 || s.thread >= static_cast<int>(plan_.streams.size())) object("thread: stream '{}' runs on thread {}, but there are {} streams", s.name, s.thread, plan_.streams.size());
      if (s.slots < 0 || s.slots > plan_.towers) object("outside: stream '{}' has {} slots for {} towers", s.name, s.slots, plan_.towers);
    }
  }

  /// Every tower with rows is in one class, whose pattern is the tower's.
  void check_classes() {
    std::vector<int> classes(static_cast<std::size_t>(plan_.present()));
    for (const TowerClass& c : plan_.classes) {
      if (c.pattern.size() != plan_.vectors.size()) object("no device: a class speaks of {} of {} vectors", c.pattern.size(), plan_.vectors.size());
      for (int t : c.towers) {
        if (t < 0 || t >= plan_.present()) {
          object("phase: a class has tower {} of {}", t, plan_.present());
          continue;
        }
        ++classes[static_cast<std::size_t>(t)];
        std::map<int, int> local;
        for (std::size_t x = 0; x < std::min(c.pattern.size(), plan_.vectors.size()); ++x) {
          int d = plan_.vectors[x][static_cast<std::size_t>(t)];
          if (c.pattern[x].device != (d < 0 ? -1 : local.try_emplace(d, static_cast<int>(local.size())).first->second)) {
            object("no device: tower {} is in a class whose pattern has other devices", t);
            break;
          }
        }
      }
    }
    for (std::size_t t = 0; t < classes.size(); ++t)
      if (classes[t] != 1) object("phase: tower {} is in {} classes", t, classes[t]);
  }

  /// Inputs that are made; every value made once; fetches and updates that are there.
  void check_values() {
    std::vector<int> made(plan_.values.size());
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i)
      for (std::size_t k = 0; k < plan_.nodes[i].outputs.size(); ++k) {
        ValueIndex v = plan_.nodes[i].outputs[k];
        if (!is_value(v)) object("dangling: '{}' makes no value", plan_.nodes[i].name);
        else if (made[static_cast<std::size_t>(v)]++) object("made twice: '{}'", plan_.value(v).name);
        else if (plan_.value(v).maker != static_cast<int>(i) || plan_.value(v).output != static_cast<int>(k)) object("made twice: '{}' names another maker", plan_.value(v).name);
      }
    auto is_made = [&](ValueIndex v) { return is_value(v) && made[static_cast<std::size_t>(v)]; };
    for (const PlanNode& n : plan_.nodes) {
      for (ValueIndex v : n.inputs)
        if (v != -1 && !is_made(v)) object("dangling: '{}' reads a value that nothing makes", n.name);
      for (auto [u, variable] : n.donates)
        if (!is_made(u) || !is_made(variable)) object("dangling: '{}' donates what is not there", n.name);
    }
    for (const auto& [name, v] : plan_.fetches)
      if (!is_made(v)) object("dangling: fetch '{}'", name);
      else if (plan_.maker(v).op != kFetch) object("dangling: fetch '{}' is made by '{}', which brings nothing to the host", name, plan_.maker(v).name);
    for (auto [variable, u] : plan_.updates)
      if (!is_made(variable) || !is_made(u)) object("dangling: an update of what is not there");
  }

  /// Every node with order, kernel, reason, devices that exist, and as many values as its op has.
  void check_nodes() {
    std::set<std::pair<bool, int>> orders;
    for (const PlanNode& n : plan_.nodes) {
      if (n.order < 0 || !orders.insert({n.scope == Scope::tower, n.order}).second) object("no order of its own: '{}'", n.name);
      if (n.reason.empty()) object("no reason: '{}'", n.name);
      if (n.inserted && n.user < 0) object("no cause: '{}'", n.name);
      if ((n.scope == Scope::state) != (n.op == kVariable)) object("state: '{}' is of the op {} and of the scope {}", n.name, n.op, to_string(n.scope));
      if (n.def) check_arity(n);
      else check_move(n);
      if (n.scope == Scope::tower) check_tower_node(n);
      else check_shared_node(n);
      for (const auto* variants : {&n.by_class, &n.by_group})
        for (const Variant& v : *variants) check_variant(n, v);
    }
  }

  void check_arity(const PlanNode& n) {
    const auto& inputs = n.def->inputs;
    bool open = !inputs.empty() && inputs.back().variadic;
    for (std::size_t i = 0; i < std::max(inputs.size(), n.inputs.size()); ++i) {
      bool optional = i < inputs.size() ? inputs[i].optional : !open;
      if (i >= inputs.size() && !open) return object("dangling: '{}' reads {} values, but {} has {} inputs", n.name, n.inputs.size(), n.op, inputs.size());
      if (!optional && (i >= n.inputs.size() || n.inputs[i] < 0)) return object("dangling: '{}' lacks an input of {}", n.name, n.op);
    }
    if (n.outputs.size() != n.def->outputs.size()) object("dangling: '{}' makes {} values, but {} has {}", n.name, n.outputs.size(), n.op, n.def->outputs.size());
    if (n.scope == Scope::device) object("no device: '{}' is no join, but stands once per device", n.name);
  }

  /// Copies, splits, stores and joins: one value in, one out, and what they need to know.
  void check_move(const PlanNode& n) {
    if (n.op == kFused) {
      for (const Member& m : n.members)
        if (m.node < 0 || m.node >= plan_.graph->size()) object("dangling: '{}' has a member that is not there", n.name);
      return;
    }
    constexpr std::array kMoves{kCopy, kSplit, kStore, kAggregate, kPreAggregate, kFetch};
    if (std::none_of(kMoves.begin(), kMoves.end(), [&](const char* op) { return n.op == op; })) return object("no kernel: '{}' is of the op '{}', which is not known", n.name, n.op);
    if (n.inputs.size() != 1 || n.inputs[0] < 0 || n.outputs.size() != 1) return object("dangling: '{}' moves {} values to {}", n.name, n.inputs.size(), n.outputs.size());
    const PlanValue &from = plan_.value(n.inputs[0]), &to = plan_.value(n.outputs[0]);
    const Scope reads = plan_.maker(n.inputs[0]).scope;
    auto has_axis = [&](int axis) { return axis >= 0 && axis < static_cast<int>(to.type.shape.size()); };
    if (n.op == kSplit && (n.scope != Scope::tower || reads == Scope::tower || !to.state.is_rows() || !has_axis(to.state.axis))) return object("dangling: '{}' splits what is no whole value", n.name);
    if ((n.op == kPreAggregate) != (n.scope == Scope::device)) return object("no device: '{}' stands once per device, but is no join of a device's towers", n.name);
    if (n.op == kPreAggregate && (n.owners < 0 || n.owners >= static_cast<int>(plan_.vectors.size()) || reads != Scope::tower)) return object("no device: '{}' joins towers, but has no owners", n.name);
    if (is_join(n) && (n.scope == Scope::tower || n.owners >= static_cast<int>(plan_.vectors.size()))) return object("no device: '{}' joins what towers have, but is a tower's", n.name);
    if (!is_join(n) && n.op != kPreAggregate) {
      if (from.type != to.type) object("dangling: '{}' moves {} into {}", n.name, to_string(from.type), to_string(to.type));
      return;
    }
    const AttributeValue *how = n.attributes.find("how"), *axis = n.attributes.find("axis");
    constexpr std::array kHow{"sum", "max", "mean", "concat_rows", "stack", "same"};
    if (!how || std::none_of(kHow.begin(), kHow.end(), [&](const char* h) { return *how == AttributeValue(h); })) return object("dangling: '{}' does not say how it joins", n.name);
    if (*how == AttributeValue("concat_rows") && (!axis || axis->kind() != AttributeKind::integer || !has_axis(static_cast<int>(std::get<std::int64_t>(*axis)))))
      object("dangling: '{}' joins rows along an axis that is not there", n.name);
  }

  void check_tower_node(const PlanNode& n) {
    if (n.vector < 0 || n.vector >= static_cast<int>(plan_.vectors.size())) return object("no device: '{}'", n.name);
    if (n.phases.size() != plan_.classes.size()) return object("phase: '{}' has {} phases for {} classes", n.name, n.phases.size(), plan_.classes.size());
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
      bool here = plan_.classes[c].pattern[static_cast<std::size_t>(n.vector)].device >= 0;
      if (here != (n.phases[c] >= 0)) return object("phase: '{}' {} phase where the tower runs it{}", n.name, here ? "has no" : "has a", here ? "" : " not");
      if (n.phases[c] >= 0 && (c >= n.by_class.size() || n.by_class[c].kernel.empty())) object("no kernel: '{}'", n.name);
    }
  }

  void check_shared_node(const PlanNode& n) {
    if (n.holders.empty()) return object("no device: '{}'", n.name);
    std::set<int> seen;
    for (int d : n.holders)
      if (!is_device(d) || !seen.insert(d).second) return object("no device: '{}' is on device {}, which is not there or named twice", n.name, d);
    if (n.scope == Scope::state) return;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      if (std::any_of(plan_.groups[g].devices.begin(), plan_.groups[g].devices.end(), [&](int d) { return seen.contains(d); }) && (g >= n.by_group.size() || n.by_group[g].kernel.empty()))
        return object("no kernel: '{}'", n.name);
  }

  /// State lies in the state, inputs in the feed, and nothing else does.
  void check_variant(const PlanNode& n, const Variant& v) {
    if (v.scratch_bytes < 0) object("outside: '{}' has {} bytes of scratch", n.name, v.scratch_bytes);
    if (v.scratch_bytes > 0 && (v.scratch.region == Slot::kState || v.scratch.region == Slot::kFeed)) object("outside: the scratch of '{}' lies in the {}", n.name, to_string(v.scratch.region));
    for (const Slot& s : v.outputs) {
      if (s.region == Slot::kNone) continue;
      if ((s.region == Slot::kState) != (n.scope == Scope::state)) object("state: '{}' lies in the {}", n.name, to_string(s.region));
      if ((s.region == Slot::kFeed) != (n.op == kInput)) object("outside: '{}' lies in the {}", n.name, to_string(s.region));
      if (std::max(std::abs(s.offset), std::abs(s.stride)) > kMostBytes) object("outside: '{}' lies at byte {}", n.name, s.offset);
    }
  }

  /// Outside the towers only joins read what each tower has.
  void check_reads() {
    for (const PlanNode& n : plan_.nodes) {
      if (n.scope == Scope::tower || is_join(n) || n.op == kPreAggregate) continue;
      for (ValueIndex v : values_read(n))
        if (plan_.maker(v).scope == Scope::tower) object("no device: '{}' is outside the towers, but reads '{}' of every tower", n.name, plan_.value(v).name);
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
        for (int d : n.holders) check(-1, m.holders.front(), d, std::any_of(m.holders.begin(), m.holders.end(), [&](int h) { return space(h) == space(d); }));
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
          if (int d = plan_.device_of(n, t); d >= 0) due.insert({t, d, n.epoch, n.phases[class_of[t]]});
        }
    for (const PlanStream& s : plan_.streams) {
      if (s.name == "main" && !s.entries.empty()) object("phase: the main stream of a device runs towers");
      for (const StreamEntry& e : s.entries) {
        std::tuple key{e.tower, s.device, e.epoch, e.phase};
        if (!due.contains(key)) object("stream of another device: phase ({}, {}) of tower {} does not run on {}", e.epoch, e.phase, e.tower, name_of(s.device));
        if (e.slot < 0 || e.slot >= s.slots) object("outside: slot {} of a stream of {}", e.slot, s.slots);
        if (e.after >= plan_.present() || e.after < -1) object("phase: tower {} follows tower {}, which is not there", e.tower, e.after);
        ++done[key];
      }
    }
    for (const auto& key : due)
      if (done[key] != 1)
        object("phase ({}, {}) of tower {} runs {} times on {}", std::get<2>(key), std::get<3>(key), std::get<0>(key), done[key], name_of(std::get<1>(key)));
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
    for (const std::string& over : over_memory(plan_)) object("memory: {}", over);
    auto check = [&](const BufferRef& b, int device, const std::string& name) {
      auto d = static_cast<std::size_t>(device);
      if (b.space == kFeedSpace) return;
      if (b.at % kAlignment) object("alignment: '{}' lies at byte {}", name, b.at);
      if (b.bytes < 0 || b.at < bound.device_start[d] || b.at + b.bytes > bound.device_start[d] + bound.device_bytes[d]) object("outside: '{}' leaves the arena of {}", name, name_of(static_cast<int>(d)));
    };
    for (const auto& stream : bound.streams)
      for (const Step& s : stream) {
        for (const auto& parts : s.writes)
          for (const Part& p : parts) check(p.buffer, s.device, plan_.value(p.buffer.tag.value).name);
        if (s.scratch.bytes) check(s.scratch, s.device, plan_.nodes[static_cast<std::size_t>(s.node)].name + " (scratch)");
        check_beside(s);
      }
    for (const StateBuffer& s : bound.state) check(s.buffer, s.device, plan_.nodes[static_cast<std::size_t>(s.node)].name);
  }

  /// Inside a step: outputs and scratch apart, and written over an input only where the op allows it, byte for byte.
  void check_beside(const Step& s) {
    const PlanNode& n = plan_.nodes[static_cast<std::size_t>(s.node)];
    auto meet = [](const BufferRef& a, const BufferRef& b) { return a.space >= 0 && a.space == b.space && a.at < b.at + b.bytes && b.at < a.at + a.bytes; };
    auto allowed = [&](std::size_t k, std::size_t i, const BufferRef& to, const BufferRef& from) {
      return to.at == from.at && to.bytes == from.bytes && n.def && std::find(n.def->in_place.begin(), n.def->in_place.end(), std::pair(static_cast<int>(k), static_cast<int>(i))) != n.def->in_place.end();
    };
    std::vector<const BufferRef*> written;
    if (s.scratch.bytes) written.push_back(&s.scratch);
    for (std::size_t k = 0; k < s.writes.size(); ++k)
      for (const Part& to : s.writes[k]) {
        for (const BufferRef* other : written)
          if (meet(*other, to.buffer)) object("overlap: '{}' writes '{}' over what it writes elsewhere", n.name, plan_.value(to.buffer.tag.value).name);
        written.push_back(&to.buffer);
        for (std::size_t i = 0; i < s.reads.size(); ++i)
          for (const Part& from : s.reads[i])
            if (meet(to.buffer, from.buffer) && !allowed(k, i, to.buffer, from.buffer)) object("overlap: '{}' writes '{}' over its input '{}'", n.name, plan_.value(to.buffer.tag.value).name, plan_.value(from.buffer.tag.value).name);
      }
    if (s.scratch.bytes)
      for (const auto& parts : s.reads)
        for (const Part& from : parts)
          if (meet(s.scratch, from.buffer)) object("overlap: the scratch of '{}' lies over its input '{}'", n.name, plan_.value(from.buffer.tag.value).name);
  }

  /// A join reads the parts of all towers that have rows, a device's join those of its pieces, side by side.
  void check_joins(const BoundPlan& bound) {
    for (const auto& stream : bound.streams)
      for (const Step& s : stream) {
        const PlanNode& n = plan_.nodes[static_cast<std::size_t>(s.node)];
        bool pre = n.op == kPreAggregate;
        if (!pre && (!is_join(n) || (plan_.maker(n.inputs[0]).scope != Scope::tower && plan_.maker(n.inputs[0]).scope != Scope::device))) continue;
        auto covered = [&](int low, int high) {
          for (const Part& p : s.reads[0])
            if (p.low == low && low < high) low = p.high;
          return low >= std::min(high, plan_.present());
        };
        bool whole = pre ? std::all_of(s.writes[0].begin(), s.writes[0].end(), [&](const Part& p) { return covered(p.low, p.high); }) : covered(0, plan_.present());
        if (!whole) object("dangling: '{}' joins the towers, but lacks the part of one", n.name);
      }
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
