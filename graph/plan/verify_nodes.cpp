#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_set>

#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/verify_parts_internal.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

class NodeChecker : public PlanChecker {
 public:
  using PlanChecker::PlanChecker;

  void run() {
    check_names();
    check_values();
    if (found_.empty()) check_unread();
    if (found_.empty()) check_each();
    if (found_.empty()) check_reads();
  }

 private:
  bool is_value(ValueIndex v) const { return v >= 0 && v < static_cast<int>(plan_.values.size()); }

  /// A file speaks of nodes, values and results by name.
  void check_names() {
    std::unordered_set<std::string_view> nodes, values, results;
    for (const PlanNode& n : plan_.nodes)
      if (!nodes.insert(n.name).second) object("made twice: two nodes are called '{}'", n.name);
    for (const PlanValue& v : plan_.values)
      if (v.maker >= 0 && !values.insert(v.name).second) object("made twice: two values are called '{}'", v.name);
    for (const auto& [name, v] : plan_.fetches)
      if (!results.insert(name).second) object("made twice: two results are called '{}'", name);
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
      if (!is_made(v)) object("dangling: fetch '{}' brings value {}, which nothing makes", name, v);
      else if (plan_.maker(v).op != kFetch) object("dangling: fetch '{}' is made by '{}', which brings nothing to the host", name, plan_.maker(v).name);
    for (auto [variable, u] : plan_.updates)
      if (!is_made(variable) || !is_made(u)) object("dangling: the update of value {} by value {}, which are not both there", variable, u);
  }

  /// Only an optional output that nobody reads is not computed.
  void check_unread() {
    std::vector<bool> wanted(plan_.values.size());
    for (const PlanNode& n : plan_.nodes)
      for (std::size_t k = 0; k < n.outputs.size(); ++k) {
        if (!is_optional(plan_, n, k)) wanted[static_cast<std::size_t>(n.outputs[k])] = true;
      }
    for (const PlanNode& n : plan_.nodes) {
      for (ValueIndex v : n.inputs)
        if (v >= 0) wanted[static_cast<std::size_t>(v)] = true;
      for (auto [u, variable] : n.donates) wanted[static_cast<std::size_t>(u)] = true;
    }
    for (auto [variable, u] : plan_.updates) wanted[static_cast<std::size_t>(u)] = true;
    for (std::size_t v = 0; v < wanted.size(); ++v)
      if (wanted[v] && !plan_.values[v].read) object("dangling: '{}' is wanted, but the plan says that nobody reads it", plan_.values[v].name);
  }

  /// Every node with order, kernel, reason, devices that exist, and as many values as its op has.
  void check_each() {
    std::set<std::pair<bool, int>> orders;
    for (const PlanNode& n : plan_.nodes) {
      if (n.order < 0 || !orders.insert({n.scope == Scope::tower, n.order}).second) object("no order of its own: '{}' has {}", n.name, n.order);
      if (n.reason.empty()) object("no reason: '{}' does not say why it is where it is", n.name);
      if (n.user < 0 || n.user >= plan_.graph->size()) object("no cause: '{}' names node {} of the graph, which has {}", n.name, n.user, plan_.graph->size());
      for (const Member& m : n.members)
        if (m.node < 0 || m.node >= plan_.graph->size()) object("dangling: '{}' has a member that is not there", n.name);
      if ((n.scope == Scope::state) != (n.op == kVariable)) object("state: '{}' is of the op {} and of the scope {}", n.name, n.op, to_string(n.scope));
      if ((n.op == kInput || n.op == kFetch) && (n.scope != Scope::shared || n.holders != DeviceList{plan_.cluster.host()}))
        object("no device: '{}' is not on {}, where feeds and results live", n.name, name_of(plan_.cluster.host()));
      if (n.def && n.op != n.def->name) object("no kernel: '{}' is called {}, but is {}", n.name, n.op, n.def->name);
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
    if (n.op == kFused) return;
    constexpr std::array kMoves{kCopy, kSplit, kStore, kAggregate, kAllGather, kPreAggregate, kFetch};
    if (std::none_of(kMoves.begin(), kMoves.end(), [&](const char* op) { return n.op == op; })) return object("no kernel: '{}' is of the op '{}', which is not known", n.name, n.op);
    if (n.inputs.size() != 1 || n.inputs[0] < 0 || n.outputs.size() != 1) return object("dangling: '{}' moves {} values to {}", n.name, n.inputs.size(), n.outputs.size());
    const PlanValue &from = plan_.value(n.inputs[0]), &to = plan_.value(n.outputs[0]);
    const Scope reads = plan_.maker(n.inputs[0]).scope;
    auto has_axis = [&](int axis) { return axis >= 0 && axis < static_cast<int>(to.type.shape.size()); };
    if (n.op == kSplit && (n.scope != Scope::tower || reads == Scope::tower || !to.state.is_rows() || !has_axis(to.state.axis))) return object("dangling: '{}' splits what is no whole value", n.name);
    if (accumulates(n)) {
      if (reads != Scope::tower || plan_.maker(n.inputs[0]).vector != n.vector || accumulates(plan_.maker(n.inputs[0]))) return object("no device: '{}' adds what its towers do not make where it runs", n.name);
    } else if ((n.op == kPreAggregate) != (n.scope == Scope::device)) return object("no device: '{}' stands once per device, but is no join of a device's towers", n.name);
    if (n.op == kPreAggregate && !accumulates(n) && (n.owners < 0 || n.owners >= static_cast<int>(plan_.vectors.size()) || (reads != Scope::tower && reads != Scope::device))) return object("no device: '{}' joins towers, but has no owners", n.name);
    if (is_join(n) && (n.scope == Scope::tower || n.owners >= static_cast<int>(plan_.vectors.size()))) return object("no device: '{}' joins what towers have, but is a tower's", n.name);
    if (!is_join(n) && n.op != kPreAggregate) {
      if (from.type != to.type) object("dangling: '{}' moves {} into {}", n.name, to_string(from.type), to_string(to.type));
      return;
    }
    const AttributeValue *how = n.attributes.find("how"), *axis = n.attributes.find("axis");
    constexpr std::array kHow{"sum", "max", "mean", "concat_rows", "stack", "same", "ranges"};
    if (!how || std::none_of(kHow.begin(), kHow.end(), [&](const char* h) { return *how == AttributeValue(h); })) return object("dangling: '{}' does not say how it joins", n.name);
    if (*how == AttributeValue("concat_rows") && (!axis || axis->kind() != AttributeKind::integer || !has_axis(static_cast<int>(std::get<std::int64_t>(*axis)))))
      object("dangling: '{}' joins rows along an axis that is not there", n.name);
  }

  void check_tower_node(const PlanNode& n) {
    if (n.vector < 0 || n.vector >= static_cast<int>(plan_.vectors.size())) return object("no device: '{}' names vector {} of {}", n.name, n.vector, plan_.vectors.size());
    if (!n.idle.empty() && (static_cast<int>(n.idle.size()) != plan_.towers - plan_.present() || std::any_of(n.idle.begin(), n.idle.end(), [&](int d) { return d != -1 && !is_device(d); })))
      return object("no device: '{}' has {} devices for {} towers without rows, or one that is not there", n.name, n.idle.size(), plan_.towers - plan_.present());
    if (n.ranged) return object("ranges: '{}' runs in the towers", n.name);
    if (n.phases.size() != plan_.classes.size()) return object("phase: '{}' has {} phases for {} classes", n.name, n.phases.size(), plan_.classes.size());
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
      bool here = plan_.classes[c].pattern[static_cast<std::size_t>(n.vector)].device >= 0;
      if (here != (n.phases[c] >= 0)) return object("phase: '{}' {} phase where the tower runs it{}", n.name, here ? "has no" : "has a", here ? "" : " not");
      if (n.phases[c] >= 0 && (c >= n.by_class.size() || n.by_class[c].kernel.empty())) object("no kernel: '{}' has none for towers of {} rows", n.name, plan_.classes[c].share);
    }
  }

  void check_shared_node(const PlanNode& n) {
    if (n.holders.empty()) return object("no device: '{}' is on none", n.name);
    std::set<int> seen;
    for (int d : n.holders)
      if (!is_device(d) || !seen.insert(d).second) return object("no device: '{}' is on device {}, which is not there or named twice", n.name, d);
    if (n.ranged)
      if (std::string why = objection_to_ranges(plan_, n, n.holders.size()); !why.empty()) return object("ranges: '{}' {}", n.name, why);
    if (n.scope == Scope::state) return;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      if (std::any_of(plan_.groups[g].devices.begin(), plan_.groups[g].devices.end(), [&](int d) { return seen.contains(d); }) && (g >= n.by_group.size() || n.by_group[g].kernel.empty()))
        return object("no kernel: '{}' has none on {}", n.name, name_of(plan_.groups[g].devices.front()));
    check_alike(n, seen);
  }

  /// What several devices hold has the same bits on each.
  void check_alike(const PlanNode& n, const std::set<int>& holders) {
    if (n.ranged || holders.size() < 2 || is_exact(plan_, n)) return;
    if (is_nondeterministic(n)) return object("unlike kernels: several devices compute '{}', by a kernel whose bits may differ from run to run; let one compute it, and others have copies", n.name);
    const DeviceGroup* first = nullptr;
    std::size_t at = 0;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      const DeviceGroup& group = plan_.groups[g];
      if (std::none_of(group.devices.begin(), group.devices.end(), [&](int d) { return holders.contains(d); })) continue;
      if (!first) first = &group, at = g;
      else if (n.by_group[g].kernel != n.by_group[at].kernel)
        return object("unlike kernels: '{}' is by '{}' on {} and by '{}' on {}, which may give other bits; let one compute it, and others have copies", n.name, n.by_group[at].kernel, name_of(first->devices.front()),
                      n.by_group[g].kernel, name_of(group.devices.front()));
    }
  }

  /// State lies in the state, inputs in the feed, and nothing else does.
  void check_variant(const PlanNode& n, const Variant& v) {
    if (v.scratch_bytes < 0) object("outside: '{}' has {} bytes of scratch", n.name, v.scratch_bytes);
    if (v.scratch_bytes > 0 && (v.scratch.region == Slot::kState || v.scratch.region == Slot::kFeed)) object("outside: the scratch of '{}' lies in the {}", n.name, to_string(v.scratch.region));
    if (!v.scratch.more.empty() && v.scratch.region != Slot::kKept) object("outside: the scratch of '{}' has {} places", n.name, v.scratch.more.size() + 1);
    check_bytes(n, v.scratch);
    if (v.outputs.size() > n.outputs.size()) object("outside: '{}' has places for {} values and makes {}", n.name, v.outputs.size(), n.outputs.size());
    for (const Slot& s : v.outputs) {
      if (s.region == Slot::kNone) continue;
      if ((s.region == Slot::kState) != (n.scope == Scope::state)) object("state: '{}' lies in the {}", n.name, to_string(s.region));
      if ((s.region == Slot::kFeed) != (n.op == kInput)) object("outside: '{}' lies in the {}", n.name, to_string(s.region));
      if (s.region == Slot::kFeed && s.offset) object("outside: '{}' lies at byte {} of its feed", n.name, s.offset);
      const bool several = s.region == Slot::kTransient ? s.stride || !s.more.empty() : !s.more.empty() && s.region != Slot::kRegion && s.region != Slot::kKept;
      if (several) object("outside: '{}' has several places in the {}, where there is one", n.name, to_string(s.region));
      check_bytes(n, s);
    }
  }

  void check_bytes(const PlanNode& n, const Slot& s) {
    const std::int64_t least = std::accumulate(s.more.begin(), s.more.end(), std::min(s.offset, s.stride), [](auto a, auto b) { return std::min(a, b); });
    const std::int64_t most = std::accumulate(s.more.begin(), s.more.end(), std::max(s.offset, s.stride), [](auto a, auto b) { return std::max(a, b); });
    if (most > kMostSummable || least < -kMostSummable) object("outside: '{}' lies at byte {}", n.name, s.offset);
  }

  /// Outside the towers only joins read what each tower has, and what each device has joined or has a range of.
  void check_reads() {
    for (const PlanNode& n : plan_.nodes) {
      for (ValueIndex v : n.inputs)
        if (v >= 0 && plan_.maker(v).ranged && !joins_ranges(plan_, n) && !(n.ranged && n.holders == plan_.maker(v).holders))
          object("ranges: '{}' reads '{}', of which each device has a range, and neither gathers it nor has the same ranges", n.name, plan_.value(v).name);
      if (is_join(n) || n.op == kPreAggregate) continue;
      for (ValueIndex v : n.inputs)
        if (v >= 0 && plan_.maker(v).scope == Scope::device) object("no device: '{}' reads '{}', of which each device has its own", n.name, plan_.value(v).name);
      if (n.scope == Scope::tower) continue;
      for (ValueIndex v : values_read(n))
        if (plan_.maker(v).scope == Scope::tower) object("no device: '{}' is outside the towers, but reads '{}' of every tower", n.name, plan_.value(v).name);
    }
  }
};

}  // namespace

std::vector<std::string> check_nodes(const PlacedGraph& plan) { return found_by<NodeChecker>(plan); }

}  // namespace belfry
