#include <belfry/placer/diff.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

std::string device(const PlacedGraph& plan, int d) { return d < 0 ? "nowhere" : to_string(plan.cluster.devices[static_cast<std::size_t>(d)].id); }

std::string devices(const PlacedGraph& plan, std::vector<int> list) {
  std::erase_if(list, [](int d) { return d < 0; });
  return list.empty() ? "nowhere" : to_string(plan.cluster.ids(list));
}

class Differ {
 public:
  Differ(const PlacedGraph& a, const PlacedGraph& b) : a_(a), b_(b) {
    for (const PlanNode& n : a.nodes) nodes_[n.name].first = &n;
    for (const PlanNode& n : b.nodes) nodes_[n.name].second = &n;
    for (const PlacedGraph* plan : {&a, &b})
      for (const PlanNode& n : plan->nodes)
        for (const Member& m : n.members)
          if (const std::string& name = plan->graph->node(m.node).name; name != n.name) (plan == &a ? inside_a_ : inside_b_)[name] = n.name;
  }

  PlanDiff run() {
    if (made_by(a_) != made_by(b_)) follows("made by {} → {}", made_by(a_), made_by(b_));
    decided("towers", a_.towers, b_.towers);
    decided("batch", a_.batch, b_.batch);
    decided("combine", to_string(a_.combine), to_string(b_.combine));
    decided("threads", a_.threads, b_.threads);
    decided("collectives", to_string(a_.placement.collectives), to_string(b_.placement.collectives));
    decided("order of phases", to_string(a_.placement.order), to_string(b_.placement.order));
    compare_graphs(*a_.graph, *b_.graph);
    compare_clusters();
    for (const PlacedGraph* plan : {&a_, &b_})
      for (const PlanNode& n : plan->nodes) {
        auto [x, y] = nodes_.at(n.name);
        if (plan == &a_ && !y) follows("'{}' ({}) is gone from {}{}", n.name, n.op, where(a_, n), fused("; it is computed inside '{}'", inside_b_, n.name));
        if (plan == &b_ && !x) follows("'{}' ({}) is new on {}: {}{}", n.name, n.op, where(b_, n), n.reason, fused("; it was computed inside '{}'", inside_a_, n.name));
        if (plan == &b_ && x) compare(*x, n);
        compare_members(*plan, n);
      }
    sum_up("waits", [&](const PlanNode& x, const PlanNode& y) { return waits(a_, x) != waits(b_, y); });
    sum_up("places in the order", [](const PlanNode& x, const PlanNode& y) { return std::tuple(x.epoch, x.phases, x.order) != std::tuple(y.epoch, y.phases, y.order); });
    sum_up("byte offsets", [](const PlanNode& x, const PlanNode& y) { return offsets(x) != offsets(y); });
    sum_up("sources, results, kernels by class or scratch bytes", [&](const PlanNode& x, const PlanNode& y) { return facts(a_, x) != facts(b_, y); });
    if (a_.classes != b_.classes || a_.groups != b_.groups || a_.frames != b_.frames) follows("classes of towers, groups of devices or their frames differ");
    if (applied(a_) != applied(b_)) follows("variables take other values at the end of the step");
    compare_streams();
    compare_bytes();
    if (a_.isa != b_.isa) follows("made for the instruction set '{}' → '{}'", a_.isa, b_.isa);
    if (a_.libraries != b_.libraries) follows("made with '{}' → '{}'", a_.libraries, b_.libraries);
    if (a_.arithmetic_hash != b_.arithmetic_hash) follows("the arithmetic differs: {} → {}", a_.arithmetic_hash, b_.arithmetic_hash);
    return std::move(out_);
  }

 private:
  template <class T>
  void decided(const char* what, const T& x, const T& y) {
    if (x != y) out_.decisions.push_back(fmt::format("{} {} → {}", what, x, y));
  }
  template <class... A>
  void follows(fmt::format_string<A...> text, A&&... arguments) { out_.follows.push_back(fmt::format(text, std::forward<A>(arguments)...)); }

  static std::string made_by(const PlacedGraph& plan) { return plan.placement.strategy + (plan.placement.options.empty() ? "" : " " + plan.placement.options); }

  static std::string where(const PlacedGraph& plan, const PlanNode& n) { return devices(plan, all_devices(plan, n)); }

  static std::string fused(fmt::format_string<const std::string&> text, const std::map<std::string, std::string>& inside, const std::string& name) {
    const auto at = inside.find(name);
    return at == inside.end() ? "" : fmt::format(text, at->second);
  }

  /// What is computed inside a fused node of one plan, and nowhere in the other.
  void compare_members(const PlacedGraph& plan, const PlanNode& n) {
    for (const Member& m : n.members) {
      const Node& user = plan.graph->node(m.node);
      const auto there = nodes_.find(user.name);
      const bool first = &plan == &a_;
      if (user.name == n.name || (first ? inside_b_ : inside_a_).contains(user.name) || (there != nodes_.end() && (first ? there->second.second : there->second.first))) continue;
      if (first) follows("'{}' ({}), computed inside '{}', is gone from {}", user.name, user.op->name, n.name, where(a_, n));
      else follows("'{}' ({}), computed inside '{}', is new on {}: {}", user.name, user.op->name, n.name, where(b_, n), n.reason);
    }
  }

  template <class... A>
  void computed(fmt::format_string<A...> text, A&&... arguments) { out_.arithmetic.push_back(fmt::format(text, std::forward<A>(arguments)...)); }

  static std::string name_of(const Graph& graph, ValueId v) { return v.node < 0 ? "nothing" : graph.name_of(v); }
  static std::vector<std::string> names_of(const Graph& graph, const std::vector<ValueId>& values) {
    std::vector<std::string> out;
    for (ValueId v : values) out.push_back(name_of(graph, v));
    return out;
  }
  static std::string text_of(const AttributeValue* value) { return value ? to_string(*value) : "none"; }

  /// Of nodes that both have; the plan's nodes say which one alone has.
  void compare_graphs(const Graph& a, const Graph& b) {
    if (&a == &b) return;
    for (const Node& y : b.nodes()) {
      const NodeId id = a.find_node(y.name);
      if (id < 0) continue;
      const Node& x = a.node(id);
      std::set<std::string> keys;
      for (const Node* n : {&x, &y})
        for (const auto& [key, value] : n->attributes.entries()) keys.insert(key);
      for (const std::string& key : keys) {
        const AttributeValue *p = x.attributes.find(key), *q = y.attributes.find(key);
        if (!p || !q || !(*p == *q)) computed("'{}': {} {} → {}", y.name, key, text_of(p), text_of(q));
      }
      if (auto p = names_of(a, x.inputs), q = names_of(b, y.inputs); p != q) computed("'{}' reads {} → {}", y.name, fmt::join(p, ", "), fmt::join(q, ", "));
    }
    auto listed = [&](const char* what, std::vector<std::string> p, std::vector<std::string> q) {
      if (p != q) computed("{} {} → {}", what, p.empty() ? "none" : fmt::format("{}", fmt::join(p, ", ")), q.empty() ? "none" : fmt::format("{}", fmt::join(q, ", ")));
    };
    listed("outputs", names_of(a, a.outputs), names_of(b, b.outputs));
    listed("losses", names_of(a, a.losses), names_of(b, b.losses));
    auto pairs = [](const Graph& graph) {
      std::vector<std::string> metrics, updates;
      for (const auto& [name, v] : graph.metrics) metrics.push_back(fmt::format("{} = {}", name, name_of(graph, v)));
      for (const auto& [variable, v] : graph.updates) updates.push_back(fmt::format("{} = {}", graph.node(variable).name, name_of(graph, v)));
      std::sort(updates.begin(), updates.end());
      return std::pair(metrics, updates);
    };
    const auto of_a = pairs(a), of_b = pairs(b);
    listed("metrics", of_a.first, of_b.first);
    std::vector<std::string> gone, fresh;
    std::set_difference(of_a.second.begin(), of_a.second.end(), of_b.second.begin(), of_b.second.end(), std::back_inserter(gone));
    std::set_difference(of_b.second.begin(), of_b.second.end(), of_a.second.begin(), of_a.second.end(), std::back_inserter(fresh));
    listed("updates", gone, fresh);
  }

  void compare_clusters() {
    std::map<DeviceId, std::pair<const ClusterDevice*, const ClusterDevice*>> both;
    for (const ClusterDevice& d : a_.cluster.devices) both[d.id].first = &d;
    for (const ClusterDevice& d : b_.cluster.devices) both[d.id].second = &d;
    for (const auto& [id, pair] : both) {
      if (!pair.second) out_.decisions.push_back(fmt::format("device {} is gone", to_string(id)));
      else if (!pair.first) out_.decisions.push_back(fmt::format("device {} is new", to_string(id)));
      else if (!(*pair.first == *pair.second)) out_.decisions.push_back(fmt::format("device {} has another space, memory or number of streams", to_string(id)));
    }
    if (a_.cluster.peers != b_.cluster.peers) out_.decisions.push_back("other GPUs read each other's memory");
    if (a_.cluster.unlinked != b_.cluster.unlinked) out_.decisions.push_back("other memory spaces are linked");
    if (a_.cluster.links != b_.cluster.links) out_.decisions.push_back("links lead elsewhere, or are as wide and as quick no more");
    if (a_.cluster.host_memory != b_.cluster.host_memory) out_.decisions.push_back("hosts have other memory");
    decided("cores", a_.cluster.cores, b_.cluster.cores);
  }

  /// Which stream runs what in which order, in how many slots, on which of the host's threads.
  void compare_streams() {
    std::map<std::pair<DeviceId, std::string>, std::pair<const PlanStream*, const PlanStream*>> both;
    auto key = [](const PlacedGraph& plan, const PlanStream& s) { return std::pair(plan.cluster.devices[static_cast<std::size_t>(s.device)].id, s.name); };
    for (const PlanStream& s : a_.streams) both[key(a_, s)].first = &s;
    for (const PlanStream& s : b_.streams) both[key(b_, s)].second = &s;
    for (const auto& [id, pair] : both) {
      const auto& [x, y] = pair;
      const std::string name = fmt::format("stream {} of {}", id.second, to_string(id.first));
      if (!x || !y) follows("{} is {}", name, y ? "new" : "gone");
      else if (x->slots != y->slots) follows("{} has {} slots, not {}", name, y->slots, x->slots);
      else if (x->entries != y->entries) follows("{} runs its towers in another order", name);
      else if (x->thread != y->thread) follows("{} is of host thread {}, not {}", name, y->thread, x->thread);
    }
    std::vector<int> order;
    for (const PlanStream& s : b_.streams)
      for (std::size_t k = 0; k < a_.streams.size(); ++k)
        if (key(a_, a_.streams[k]) == key(b_, s)) order.push_back(static_cast<int>(k));
    if (!std::is_sorted(order.begin(), order.end())) follows("streams stand in another order");
  }

  static bool is_derived(const PlanNode& n) { return changes_nothing(n) || n.again || (n.def && n.def->source); }

  void compare(const PlanNode& x, const PlanNode& y) {
    std::string moved = x.scope == Scope::tower && y.scope == Scope::tower ? moved_towers(x, y) : "";
    if (x.scope != y.scope) follows("'{}' has the scope {}, not {}", y.name, to_string(y.scope), to_string(x.scope));
    else if (x.scope != Scope::tower && where(a_, x) != where(b_, y)) moved = fmt::format("{} → {}", where(a_, x), where(b_, y));
    if (!moved.empty()) {
      std::string line = fmt::format("'{}': {}", y.name, moved);
      if (is_derived(y)) follows("{}", line);
      else out_.decisions.push_back(std::move(line));
    }
    if (!is_derived(y) && way_of(x) != way_of(y)) out_.decisions.push_back(fmt::format("'{}': {} → {}", y.name, way_of(x), way_of(y)));
    if (x.once != y.once) follows("'{}' is made {}", y.name, y.once ? "once" : "in each step");
    if (x.op != y.op) follows("'{}' is a {}, not a {}", y.name, y.op, x.op);
    if (auto p = kernels(a_, x), q = kernels(b_, y); p != q) follows("'{}': kernel {} → {}", y.name, fmt::join(p, ", "), fmt::join(q, ", "));
  }

  /// What else is decided of a node: "whole, direct", "in ranges, groups, bucket 2".
  static std::string way_of(const PlanNode& n) {
    return fmt::format("{}{}{}", n.ranged ? "in ranges" : "whole", n.op == kAggregate ? ", " + to_string(n.sum) : "", n.bucket ? fmt::format(", bucket {}", n.bucket) : "");
  }

  /// "tower 1-3: sim:0 → sim:1"; towers that went the same way together, those without rows where the plans are for as many or both know their devices.
  std::string moved_towers(const PlanNode& x, const PlanNode& y) const {
    std::string out;
    const int count = std::min(a_.towers, b_.towers);
    const std::vector<int> of_a = devices_of_towers(a_, x), of_b = devices_of_towers(b_, y);
    const bool alike = a_.towers == b_.towers && a_.present() == b_.present();
    auto way = [&](int t) {
      const int from = of_a[static_cast<std::size_t>(t)], to = of_b[static_cast<std::size_t>(t)];
      return !alike && (from < 0 || to < 0) ? std::pair<std::string, std::string>() : std::pair(device(a_, from), device(b_, to));
    };
    for (int t = 0; t < count;) {
      auto here = way(t);
      int end = t + 1;
      while (end < count && way(end) == here) ++end;
      if (here.first != here.second)
        out += fmt::format("{}tower {}: {} → {}", out.empty() ? "" : "; ", end - t > 1 ? fmt::format("{}-{}", t, end - 1) : std::to_string(t), here.first, here.second);
      t = end;
    }
    return out;
  }

  /// Those of groups of devices, then those of towers where they are not one.
  static std::vector<std::string> kernels(const PlacedGraph& plan, const PlanNode& n) {
    std::set<std::string> out;
    for (const auto* list : {&n.by_class, &n.by_group})
      for (const Variant& v : *list)
        if (!v.kernel.empty()) out.insert(v.kernel);
    if (n.scope != Scope::tower || out.size() < 2) return {out.begin(), out.end()};
    std::vector<std::string> by_tower;
    for (std::size_t c = 0; c < n.by_class.size(); ++c)
      if (const std::string& kernel = n.by_class[c].kernel; !kernel.empty()) by_tower.push_back(fmt::format("{} in {} {}", kernel, plan.classes[c].towers.size() > 1 ? "towers" : "tower", fmt::join(plan.classes[c].towers, " ")));
    return by_tower;
  }
  static std::vector<std::pair<int, std::string>> waits(const PlacedGraph& plan, const PlanNode& n) {
    std::vector<std::pair<int, std::string>> out;
    for (const Wait& w : n.waits) out.emplace_back(w.relation, plan.value(w.value).name);
    return out;
  }
  static std::vector<Slot> offsets(const PlanNode& n) {
    std::vector<Slot> out;
    for (const auto* list : {&n.by_class, &n.by_group})
      for (const Variant& v : *list) {
        out.insert(out.end(), v.outputs.begin(), v.outputs.end());
        out.push_back(v.scratch);
      }
    return out;
  }

  static std::set<std::pair<std::string, std::string>> applied(const PlacedGraph& plan) {
    std::set<std::pair<std::string, std::string>> out;
    for (auto [variable, v] : plan.updates) out.emplace(plan.value(variable).name, plan.value(v).name);
    return out;
  }

  /// What no other line speaks of. Attributes of the user's nodes are the graph's.
  using Facts = std::tuple<std::vector<std::string>, Attributes, std::vector<std::string>, std::vector<std::string>, std::vector<std::pair<std::string, std::int64_t>>, std::string, Role>;
  static Facts facts(const PlacedGraph& plan, const PlanNode& n) {
    auto named = [&](const std::vector<ValueIndex>& values) {
      std::vector<std::string> out;
      for (ValueIndex v : values) out.push_back(v < 0 ? "" : plan.value(v).name);
      return out;
    };
    std::vector<std::string> results, donated;
    for (ValueIndex v : n.outputs) results.push_back(fmt::format("{} {}{}", to_string(plan.value(v).type), to_string(plan.value(v).state), plan.value(v).read ? "" : " unread"));
    for (auto [v, variable] : n.donates) donated.push_back(fmt::format("{} over {}", plan.value(v).name, plan.value(variable).name));
    std::vector<std::pair<std::string, std::int64_t>> scratch;
    for (const auto* list : {&n.by_class, &n.by_group})
      for (const Variant& v : *list) scratch.emplace_back(v.kernel, v.scratch_bytes);
    const std::vector<int> owners = n.owners < 0 || n.owners >= static_cast<int>(plan.vectors.size()) ? std::vector<int>() : plan.vectors[static_cast<std::size_t>(n.owners)];
    if (n.ranged) results.push_back("in ranges");
    if (n.inserted && n.user >= 0) results.push_back("for " + plan.graph->node(n.user).name);
    return {named(n.inputs), n.def ? Attributes() : n.attributes, results, donated, scratch, devices(plan, owners), n.role};
  }

  template <class F>
  void sum_up(const char* what, F&& differ) {
    int count = 0;
    for (const auto& [name, pair] : nodes_)
      if (pair.first && pair.second && differ(*pair.first, *pair.second)) ++count;
    if (count) follows("{} of {} node{} differ", what, count, count == 1 ? "" : "s");
  }

  void compare_bytes() {
    std::vector<DeviceBytes> of_a = device_bytes(a_), of_b = device_bytes(b_);
    for (std::size_t i = 0; i < b_.cluster.devices.size(); ++i) {
      int before = a_.cluster.find(b_.cluster.devices[i].id);
      if (before < 0) continue;
      std::int64_t x = of_a[static_cast<std::size_t>(before)].total(), y = of_b[i].total();
      if (x != y) follows("memory of {}: {} → {} bytes", to_string(b_.cluster.devices[i].id), x, y);
    }
  }

  const PlacedGraph &a_, &b_;
  std::map<std::string, std::pair<const PlanNode*, const PlanNode*>> nodes_;
  std::map<std::string, std::string> inside_a_, inside_b_;  ///< of what is computed inside a fused node, that one
  PlanDiff out_;
};

}  // namespace

UnlikeGraphs unlike_graphs(const Graph& a, const Graph& b) {
  std::vector<std::string> types, alone;
  auto look = [&](const char* what, const std::vector<NodeId>& of_a, const std::vector<NodeId>& of_b) {
    std::map<std::string, std::pair<const Node*, const Node*>> both;
    for (NodeId id : of_a) both[a.node(id).name].first = &a.node(id);
    for (NodeId id : of_b) both[b.node(id).name].second = &b.node(id);
    for (const auto& [name, nodes] : both) {
      const auto [x, y] = nodes;
      if (!x || !y) alone.push_back(fmt::format("the {} '{}' is in the {} alone", what, name, x ? "first" : "second"));
      else if (!(x->types[0] == y->types[0])) types.push_back(fmt::format("the {} '{}' is {} in the first and {} in the second", what, name, to_string(x->types[0]), to_string(y->types[0])));
    }
  };
  look("input", a.inputs(), b.inputs());
  look("variable", a.variables(), b.variables());
  const std::size_t found = types.size() + alone.size();
  if (!found) return {};
  return {(types.empty() ? alone : types)[0] + (found > 1 ? fmt::format(", and {} more", found - 1) : ""), !types.empty()};
}

PlanDiff diff_plans(const PlacedGraph& a, const PlacedGraph& b) { return Differ(a, b).run(); }

std::string to_string(const PlanDiff& diff) {
  std::string out;
  for (const std::string& line : diff.arithmetic) out += "arithmetic: " + line + "\n";
  for (const std::string& line : diff.decisions) out += "decision: " + line + "\n";
  for (const std::string& line : diff.follows) out += "follows: " + line + "\n";
  return out;
}

}  // namespace belfry
