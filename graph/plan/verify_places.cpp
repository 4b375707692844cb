#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <belfry/graph/plan/links.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/plan/verify_parts_internal.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

class PlaceChecker : public PlanChecker {
 public:
  using PlanChecker::PlanChecker;

  void run() {
    check_copies();
    check_state();
    check_once();
    check_streams();
    check_lists();
  }

 private:
  /// What has a place for each part has as many as there are parts.
  void check_lists() {
    std::optional<RegionCounts> counts;
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      for (std::size_t g = 0; g < std::min(n.by_group.size(), plan_.groups.size()); ++g)
        for (const Slot& s : std::as_const(n.by_group)[g].outputs) {
          if (s.more.empty()) continue;
          if (!counts) counts.emplace(plan_, std::vector<bool>(plan_.values.size(), true), last_in_slots(plan_));
          for (int d : plan_.groups[g].devices)
            if (const int parts = counts->count(i, d); parts != static_cast<int>(s.more.size()) + 1) object("outside: '{}' has {} places on {} for {} part{}", n.name, s.more.size() + 1, name_of(d), parts, parts == 1 ? "" : "s");
        }
    }
  }

  /// One copy per value and destination, only where a space lacks the value, over a link that exists.
  void check_copies() {
    std::set<std::tuple<ValueIndex, int, std::string>> destinations;
    auto space = [&](int d) { return plan_.cluster.space(d); };
    Apart apart(plan_.cluster);
    for (const PlanNode& n : plan_.nodes) {
      if (n.op != kCopy) continue;
      const ValueIndex copied = copied_by(plan_, n);
      const PlanNode &m = plan_.maker(n.inputs[0]), &origin = plan_.maker(copied);
      auto check = [&](int tower, int from, int to, bool held) {
        if (from < 0 || to < 0) return;
        if (!destinations.insert({copied, tower, space(to)}).second) object("two copies: '{}' to {}", plan_.value(copied).name, space(to));
        if (held) object("needless copy: '{}' inside {}", n.name, space(to));
        if (apart(from, to)) object("no link: '{}' from {} to {}", n.name, space(from), space(to));
      };
      if (n.scope == Scope::tower && m.scope == Scope::tower) {
        for (int t = 0; t < plan_.present(); ++t) {
          int a = plan_.device_of(m, t), b = plan_.device_of(n, t);
          if (a >= 0 && b >= 0) check(t, a, b, space(a) == space(b) || (origin.scope == Scope::tower && plan_.device_of(origin, t) >= 0 && space(plan_.device_of(origin, t)) == space(b)));
        }
      } else if (m.scope != Scope::tower) {
        for (int d : n.holders)
          check(-1, m.holders.front(), d, std::any_of(m.holders.begin(), m.holders.end(), [&](int h) { return space(h) == space(d); }) || std::any_of(origin.holders.begin(), origin.holders.end(), [&](int h) { return space(h) == space(d); }));
      } else {
        object("no device: the copy '{}' of a tower's value is not the tower's", n.name);
      }
    }
  }

  /// Each variable is written once, on the devices that hold it.
  void check_state() {
    std::map<ValueIndex, int> writers;
    std::set<ValueIndex> updated;
    for (auto [variable, u] : plan_.updates) updated.insert(variable);
    for (const PlanNode& n : plan_.nodes)
      for (auto [u, variable] : n.donates) {
        ++writers[variable];
        const PlanNode& w = plan_.maker(variable);
        const std::string& name = plan_.value(variable).name;
        if (w.scope != Scope::state) object("state: '{}' is no variable", name);
        else if (w.ranged != n.ranged) object("ranges: '{}' is written by '{}', which does not have the same ranges", name, n.name);
        else if (w.holders != n.holders) object("state: '{}' is written on other devices than hold it", name);
        if (!updated.contains(variable)) object("state: '{}' has no update", name);
        if (std::find(n.outputs.begin(), n.outputs.end(), u) == n.outputs.end()) object("state: '{}' donates what it does not make", n.name);
      }
    for (auto [variable, u] : plan_.updates)
      if (writers[variable] != 1) object("state: '{}' is written {} times", plan_.value(variable).name, writers[variable]);
  }

  /// It is made of what is there, and stands before all that each step runs on its devices.
  void check_once() {
    std::vector<const PlanNode*> first(plan_.cluster.devices.size());  // per device, of each step's
    for (const PlanNode& n : plan_.nodes)
      if (!is_there(n) && n.scope != Scope::tower)
        for (int d : n.holders)
          if (auto& f = first[static_cast<std::size_t>(d)]; !f || n.order < f->order) f = &n;
    for (const PlanNode& n : plan_.nodes) {
      if (!n.once) continue;
      if (const std::string why = why_each_step(plan_, n); !why.empty()) object("once: '{}' cannot be made once: {}; take \"once\" out, and derive the plan anew", n.name, why);
      for (int d : n.holders)
        if (const PlanNode* f = n.scope == Scope::shared ? first[static_cast<std::size_t>(d)] : nullptr; f && f->order < n.order) return object("once: '{}' is made once, before all steps, but stands behind '{}'", n.name, f->name);
    }
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
};

}  // namespace

std::vector<std::string> check_places(const PlacedGraph& plan) { return found_by<PlaceChecker>(plan); }

}  // namespace belfry
