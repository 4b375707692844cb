#include <belfry/frontends/session/kernel_chooser.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/session/engines.h>
#include <belfry/frontends/session/gpus.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// What Program asks for when it prepares the node, the share aside: a choice depends on local types alone.
KernelRequest request_of(const KernelQuery& q) {
  const PlanNode& n = q.node;
  KernelRequest r;
  r.op = n.op == kFused ? n.attributes.text("kind") : n.op;
  r.def = n.def;
  r.attributes = &n.attributes;
  r.inputs = q.inputs;
  for (std::size_t i = 0; i < n.inputs.size(); ++i)
    if (n.inputs[i] < 0) r.inputs[i] = {f32, {0}};
  r.outputs = q.outputs;
  for (ValueIndex v : n.outputs) {
    r.output_types.push_back(q.graph.value(v).type);
    r.wanted.push_back(q.graph.value(v).read);
  }
  if (const std::optional<FusionGroup> group = group_of(q.graph, n)) describe_members(*q.graph.graph, *group, r);
  r.threads = q.threads;
  return r;
}

std::string op_of(const PlanNode& n) { return n.op == kFused ? n.attributes.text("kind") : n.op; }

std::vector<bool> wanted(const TowerGraph& graph, const PlanNode& n) {
  std::vector<bool> out;
  for (ValueIndex v : n.outputs) out.push_back(graph.value(v).read);
  return out;
}

std::string key_of(const PlanNode& n, const std::string& kind, const std::vector<LocalType>& inputs, const std::vector<LocalType>& outputs) {
  std::string out = fmt::format("{} {} {}", n.name, op_of(n), kind);
  for (const auto* types : {&inputs, &outputs}) {
    out += ";";
    for (const LocalType& t : *types) out += " " + to_string(t);
  }
  return out;
}

struct Kept {
  std::string kernel;
  std::vector<bool> wanted;
};

/// `several`: the names of those with more than one, of which the first is kept.
std::map<std::string, Kept> kernels_of(const PlacedGraph& plan, std::set<std::string>* several = nullptr) {
  std::map<std::string, Kept> out;
  auto add = [&](const PlanNode& n, const Variant& variant, const Share& share, int device) {
    auto types = [&](const std::vector<ValueIndex>& values) {
      std::vector<LocalType> of;
      for (ValueIndex v : values) of.push_back(v < 0 ? LocalType{} : n.ranged ? type_on(plan, n, v, n.holders.get().front()) : local_type(plan.value(v), share));
      return of;
    };
    const auto [at, fresh] = out.try_emplace(key_of(n, plan.cluster.devices[static_cast<std::size_t>(device)].kernels(), types(n.inputs), types(n.outputs)), Kept{variant.kernel, wanted(plan, n)});
    if (several && at->second.kernel != variant.kernel) several->insert(n.name);
  };
  for (const PlanNode& n : plan.nodes) {
    if (!n.def && n.op != kFused) continue;
    if (n.scope == Scope::tower) {
      for (std::size_t c = 0; c < plan.classes.size(); ++c)
        if (n.phases[c] >= 0) add(n, n.by_class[c], plan.share(plan.classes[c].towers[0]), plan.device_of(n, plan.classes[c].towers[0]));
    } else {
      for (std::size_t g = 0; g < plan.groups.size(); ++g)
        for (int d : plan.groups[g].devices)
          if (std::find(n.holders.begin(), n.holders.end(), d) != n.holders.end()) {
            add(n, n.by_group[g], plan.share(-1), d);
            break;
          }
    }
  }
  return out;
}

/// Per member and input, the place in the group of the member that makes it; -1: it comes from outside.
std::vector<std::vector<std::ptrdiff_t>> shape_of(const Graph& g, const std::vector<NodeId>& members) {
  std::vector<std::vector<std::ptrdiff_t>> out;
  for (NodeId id : members) {
    out.emplace_back();
    for (ValueId v : g.node(id).inputs) {
      auto at = std::find(members.begin(), members.end(), v.node);
      out.back().push_back(at == members.end() ? -1 : at - members.begin());
    }
  }
  return out;
}

/// What the kernels of the op say to the request: of those that were asked last, which are for the most, two.
std::string refusals(const KernelTable& table, const KernelRequest& request, const Leeway& leeway) {
  constexpr std::size_t kShown = 2;
  std::vector<std::string> all;
  table.choose(request, &all, leeway);
  if (all.size() > kShown) all.erase(all.begin(), all.end() - kShown);
  return fmt::format("{}", fmt::join(all, "; "));
}

}  // namespace

KernelChooser chooser(const KernelTables& tables, const std::map<std::string, std::string>& engines, bool nondeterministic) {
  return [tables, engines, nondeterministic](const KernelQuery& q) -> KernelChoice {
    auto table = tables.find(q.device_kind);
    if (table == tables.end()) {
      const std::string where = fmt::format("[{}] '{}' is placed on a device of kind '{}', for which there are no kernels", q.node.op, q.node.name, q.device_kind);
      if (q.device_kind != "gpu") throw UserError(where + "; move it with --move");
      throw UserError(fmt::format("{}: {}. Name cpu:0 where it is moved, placed or requested, or move it there with --move '{}=cpu:0'; --soft-placement leaves what the graph requests of GPUs to the strategy", where, why_no_gpu_kernels(), q.node.name));
    }
    const KernelRequest request = request_of(q);
    const Leeway leeway{q.graph.graph->precision.rounds, nondeterministic};
    KernelTable::Choice choice = table->second.choose(request, nullptr, leeway);
    if (!engines.empty())
      if (auto at = engines.find(engine_key(choice.name, request)); at != engines.end()) {
        const std::string named = choice.name + "@" + at->second;
        if (const Support s = table->second.support(named, request); s.ok) choice = {named, s};
      }
    return {choice.name, choice.support.scratch_bytes, choice.support.in_place, choice.name == kReferenceKernel && q.device_kind == "gpu" ? refusals(table->second, request, leeway) : ""};
  };
}

KernelChooser or_roofline(const KernelTables& tables, const std::map<std::string, std::string>& engines, bool nondeterministic) {
  return [known = chooser(tables, engines, nondeterministic), tables](const KernelQuery& q) -> KernelChoice { return tables.contains(q.device_kind) ? known(q) : KernelChoice{"roofline", 0, true}; };
}

KernelChooser keeping(const PlacedGraph& plan, const KernelTables& tables, bool nondeterministic) {
  return [kept = kernels_of(plan), tables, otherwise = chooser(tables, {}, nondeterministic)](const KernelQuery& q) -> KernelChoice {
    auto at = kept.find(key_of(q.node, q.device_kind, q.inputs, q.outputs));
    auto table = tables.find(q.device_kind);
    if (at == kept.end() || table == tables.end()) return otherwise(q);
    const auto& [kernel, of_plan] = at->second;
    Support s;
    try {
      s = table->second.support(kernel, request_of(q));
    } catch (const UserError& e) {
      throw UserError(fmt::format("'{}': {}", q.node.name, e.what()));
    }
    if (s.ok) return {kernel, s.scratch_bytes, s.in_place};
    // Other outputs are read than in the plan: its kernel was chosen for something else.
    if (of_plan != wanted(q.graph, q.node)) return otherwise(q);
    throw UserError(fmt::format("[{}] the plan names the kernel '{}' for '{}', which refuses: {}; derive the plan anew with belfry place", op_of(q.node), kernel, q.node.name, s.reason));
  };
}

std::vector<std::string> several_kernels(const PlacedGraph& plan) {
  std::set<std::string> out;
  kernels_of(plan, &out);
  return {out.begin(), out.end()};
}

std::vector<FusionGroup> groups_of(const PlacedGraph& plan, const Graph& graph, const std::vector<FusionGroup>& found) {
  std::vector<FusionGroup> out;
  auto is_known = [&](NodeId was, NodeId id) { return was >= 0 && id >= 0 && graph.node(id).op == plan.graph->node(was).op && graph.node(id).attributes == plan.graph->node(was).attributes; };
  for (const PlanNode& n : plan.nodes) {
    if (n.op != kFused) continue;
    FusionGroup group{n.attributes.text("kind"), {}, {}};
    std::vector<NodeId> before;
    bool same = true;
    for (const Member& m : n.members) {
      NodeId id = graph.find_node(plan.graph->node(m.node).name);
      same = same && is_known(m.node, id);
      before.push_back(m.node);
      group.members.push_back(id);
      if (m.kept) group.kept.push_back(id);
    }
    if (same && shape_of(*plan.graph, before) == shape_of(graph, group.members)) out.push_back(std::move(group));
  }
  std::set<NodeId> taken;
  for (const FusionGroup& group : out) taken.insert(group.members.begin(), group.members.end());
  for (const FusionGroup& group : found) {
    auto any = [&](const auto& is) { return std::any_of(group.members.begin(), group.members.end(), is); };
    if (any([&](NodeId id) { return !is_known(plan.graph->find_node(graph.node(id).name), id); }) && !any([&](NodeId id) { return taken.contains(id); })) out.push_back(group);
  }
  return out;
}

}  // namespace belfry
