#include <algorithm>
#include <map>
#include <optional>

#include <belfry/graph/plan/verify.h>
#include <belfry/graph/plan/verify_parts_internal.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// The graph's value that a plan's value stands for: what is inserted between them moves it, and changes nothing.
std::optional<ValueId> value_of_user(const PlacedGraph& plan, ValueIndex v) {
  for (std::size_t steps = 0; v >= 0 && steps <= plan.nodes.size(); ++steps) {
    const PlanNode& m = plan.maker(v);
    if (!m.inserted || m.again) {
      const std::vector<ValueId> made = values_of(plan, m);
      const auto k = static_cast<std::size_t>(plan.value(v).output);
      return k < made.size() ? std::optional(made[k]) : std::nullopt;
    }
    if (m.def) break;
    v = m.inputs[0];
  }
  return {};
}

class GraphChecker : public PlanChecker {
 public:
  explicit GraphChecker(const PlacedGraph& plan) : PlanChecker(plan), g_(*plan.graph), standing_(static_cast<std::size_t>(g_.size())) {}

  void run() {
    for (const PlanNode& n : plan_.nodes)
      if (n.inserted && !n.again) check_inserted(n);
      else check_own(n);
    for (const auto& [name, v] : plan_.fetches)
      if (const std::string why = objection_to_result(plan_, name, v); !why.empty()) object("dangling: {}", why);
    if (!plan_.updates.empty()) check_updates();
    check_donated();
  }

 private:
  std::optional<ValueId> user_value(ValueIndex v) const { return value_of_user(plan_, v); }
  std::string named(ValueId v) const { return v.valid() ? "'" + g_.name_of(v) + "'" : "nothing"; }

  void expect_value(const PlanNode& n, ValueIndex v, ValueId want) {
    std::optional<ValueId> have = v < 0 ? ValueId{} : user_value(v);
    if (!have) object("dangling: '{}' reads '{}', which stands for no value of the graph", n.name, plan_.value(v).name);
    else if (*have != want) object("dangling: '{}' reads {}, but in the graph it reads {}", n.name, named(*have), named(want));
  }

  void expect_inputs(const PlanNode& n, const std::vector<ValueId>& want) {
    if (n.inputs.size() != want.size()) return object("dangling: '{}' reads {} values, but in the graph {}", n.name, n.inputs.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) expect_value(n, n.inputs[i], want[i]);
  }

  /// A fetch brings the value that is its cause; all other moves are judged where they end.
  void check_inserted(const PlanNode& n) {
    const Node& u = g_.node(n.user);
    if (n.def && (n.def != u.op || !n.def->sum_of_inputs)) object("dangling: '{}' is inserted, but computes something", n.name);
    if (n.op == kFused) object("dangling: '{}' is inserted, but computes something", n.name);
    if (n.op != kFetch) return;
    std::optional<ValueId> v = user_value(n.inputs[0]);
    if (!v || v->node != n.user) object("dangling: '{}' reads '{}', but is to bring '{}'", n.name, plan_.value(n.inputs[0]).name, u.name);
  }

  /// A node of the user's: the same op, attributes and inputs, under the same name.
  void check_own(const PlanNode& n) {
    const Node& u = g_.node(n.user);
    if (n.name != (n.again ? u.name + kAgain : u.name)) return object("dangling: '{}' stands for the graph's '{}'", n.name, u.name);
    auto user = static_cast<std::size_t>(n.user);
    if (standing_[user] & (n.again ? 2 : 1)) return object("made twice: '{}'", n.name);
    standing_[user] |= n.again ? 2 : 1;
    if (n.again && (!n.inserted || n.scope != Scope::tower || u.role != Role::forward)) return object("dangling: '{}' computes again what is no tower's forward", n.name);
    const std::vector<ValueId> made = values_of(plan_, n);
    if (n.outputs.size() != made.size()) return object("type: '{}' makes {} values, but in the graph {}", n.name, n.outputs.size(), made.size());
    for (std::size_t k = 0; k < made.size(); ++k) {
      const PlanValue& value = plan_.value(n.outputs[k]);
      if (value.type != g_.type(made[k])) object("type: '{}' makes {}, but in the graph {}", n.name, to_string(value.type), to_string(g_.type(made[k])));
      else if (!n.again && value.name != g_.name_of(made[k])) object("dangling: output {} of '{}' is called '{}', but is '{}'", k, n.name, value.name, g_.name_of(made[k]));
    }
    if (n.op == kFused) return check_fused(n);
    if (n.op == kAggregate && u.op->joins_towers) return expect_inputs(n, u.inputs);
    if (n.def != u.op || n.attributes != u.attributes) return object("dangling: '{}' is not the {} that the graph has, or has other attributes", n.name, u.op->name);
    if (n.members.empty()) expect_inputs(n, u.inputs);
    else check_cut(n);
  }

  /// A fused node reads what its members read from outside, in order, but for what is read for its shape alone; the last member is the node that it stands for.
  void check_fused(const PlanNode& n) {
    const AttributeValue* kind = n.attributes.find("kind");
    if (!kind || kind->kind() != AttributeKind::text) return object("dangling: '{}' does not say what kind of group it is", n.name);
    if (n.members.empty()) return object("dangling: '{}' has no members", n.name);
    std::vector<ValueId> want;
    for (std::size_t m = 0; m < n.members.size(); ++m) {
      const Node& member = g_.node(n.members[m].node);
      for (std::size_t i = 0; i < member.inputs.size(); ++i) {
        const ValueId v = member.inputs[i];
        if (std::none_of(n.members.begin(), n.members.begin() + static_cast<std::ptrdiff_t>(m), [&](const Member& earlier) { return earlier.node == v.node; })) want.push_back(reads_shape_only(member, i) ? ValueId{} : v);
        else if (v.output != 0) return object("dangling: '{}' reads {} inside '{}', which gives it to others", member.name, named(v), n.name);
      }
    }
    if (n.members.back().node != n.user) return object("dangling: the last member of '{}' is '{}'", n.name, g_.node(n.members.back().node).name);
    expect_inputs(n, want);
  }

  /// A sum that expand cut: the partials' sum, then the rest; together they are the graph's inputs, each in its order.
  void check_cut(const PlanNode& n) {
    const std::vector<ValueId>& want = g_.node(n.user).inputs;
    ValueIndex v = n.inputs[0];
    for (std::size_t steps = 0; v >= 0 && plan_.maker(v).inserted && !plan_.maker(v).def && steps < plan_.nodes.size(); ++steps) v = plan_.maker(v).inputs[0];
    if (!n.def->sum_of_inputs || v < 0 || !plan_.maker(v).inserted || plan_.maker(v).def != n.def || plan_.maker(v).user != n.user)
      return object("dangling: '{}' says that it is cut, but does not read the sum of its partials", n.name);
    const PlanNode& partials = plan_.maker(v);
    std::size_t part = 0, rest = 1;
    for (ValueId x : want) {
      if (part < partials.inputs.size() && user_value(partials.inputs[part]) == x) ++part;
      else if (rest < n.inputs.size() && user_value(n.inputs[rest]) == x) ++rest;
      else return object("dangling: '{}' lacks {}, which the graph adds", n.name, named(x));
    }
    if (part != partials.inputs.size() || rest != n.inputs.size()) object("dangling: '{}' adds what the graph does not", n.name);
  }

  /// All updates of the graph, each by its own value; or none, where a plan only computes.
  void check_updates() {
    std::map<NodeId, ValueIndex> by;
    for (auto [variable, u] : plan_.updates)
      if (!by.try_emplace(plan_.maker(variable).user, u).second) object("state: '{}' has two updates", plan_.value(variable).name);
    for (const auto& [variable, want] : g_.updates) {
      auto at = by.find(variable);
      if (at == by.end()) object("state: '{}' is not updated, but in the graph it is", g_.node(variable).name);
      else if (user_value(at->second) != want) object("state: '{}' becomes '{}', but in the graph '{}'", g_.node(variable).name, plan_.value(at->second).name, g_.name_of(want));
    }
    for (auto [variable, u] : plan_.updates)
      if (plan_.maker(variable).op != kVariable || !g_.updates.contains(plan_.maker(variable).user)) object("state: '{}' is updated, but in the graph it is not", plan_.value(variable).name);
  }

  /// What is written over a variable is its update, itself or through stores.
  void check_donated() {
    std::map<ValueIndex, ValueIndex> update;
    for (auto [variable, u] : plan_.updates) update[variable] = u;
    for (const PlanNode& n : plan_.nodes)
      for (auto [v, variable] : n.donates) {
        auto u = update.find(variable);
        if (u == update.end()) continue;  // objected to where holders are
        ValueIndex from = v;
        for (std::size_t steps = 0; from != u->second && (plan_.maker(from).op == kStore || plan_.maker(from).op == kAllGather) && steps < plan_.nodes.size(); ++steps) from = plan_.maker(from).inputs[0];
        if (from != u->second) object("state: '{}' is written by '{}', but its update is '{}'", plan_.value(variable).name, plan_.value(v).name, plan_.value(u->second).name);
      }
  }

  const Graph& g_;
  std::vector<int> standing_;  ///< 1: a node of the plan stands for it; 2 more: and one that computes it again
};

}  // namespace

std::string objection_to_result(const PlacedGraph& plan, const std::string& name, ValueIndex fetched) {
  const PlanNode& n = plan.maker(fetched);
  if (n.name != fetch_node(name)) return fmt::format("the result '{}' is what '{}' brings, not '{}'", name, n.name, fetch_node(name));
  const std::optional<ValueId> have = value_of_user(plan, n.inputs[0]), want = named_result(*plan.graph, name);
  // One value, unless it is what each tower has that is asked for, or that is made.
  const bool stacked = n.attributes.text("how") == "stack", each = name.ends_with(kTowersSuffix) || plan.value(n.inputs[0]).state.is_per_tower();
  if (stacked != each) return fmt::format("the result '{}' is {}, but its name means {}", name, stacked ? "what each tower has" : "one value", each ? "what each tower has" : "one value");
  if (want && have != want) return fmt::format("the result '{}' is '{}', but in the graph it is '{}'", name, plan.value(n.inputs[0]).name, plan.graph->name_of(*want));
  return "";
}

std::vector<std::string> check_graph(const PlacedGraph& plan) { return found_by<GraphChecker>(plan); }

}  // namespace belfry
