#include <belfry/placer/place.h>

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <xxhash.h>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/assign.h>
#include <belfry/placer/choose.h>
#include <belfry/placer/lower.h>
#include <belfry/placer/recompute.h>
#include <belfry/placer/requests.h>

namespace belfry {

namespace {

constexpr const char* kReference = "reference";

/// Of ranges, those of the first holder, which has the longest.
std::vector<LocalType> local_types(const PlacedGraph& plan, const PlanNode& n, const std::vector<ValueIndex>& values, const Share& share) {
  std::vector<LocalType> out;
  for (ValueIndex v : values) out.push_back(v < 0 ? LocalType{} : n.ranged ? type_on(plan, n, v, n.holders.get().front()) : local_type(plan.value(v), share));
  return out;
}

bool has_gpus(const Cluster& cluster) {
  return std::any_of(cluster.devices.begin(), cluster.devices.end(), [](const ClusterDevice& d) { return d.id.kind == "gpu"; });
}

void choose(const PlacedGraph& plan, const PlanNode& n, const KernelChooser& chooser, const Share& share, const std::string& kind, Variant& variant) {
  if (n.scope == Scope::state || n.op == kInput) variant.kernel = n.scope == Scope::state ? "" : "feed";
  else if (!n.def && n.op != kFused) variant.kernel = n.op;  // structural nodes have one kernel, of their own name
  else {
    KernelChoice choice = chooser ? chooser({plan, n, local_types(plan, n, n.inputs, share), local_types(plan, n, n.outputs, share), kind, plan.threads}) : KernelChoice{kReference, 0, true};
    variant.kernel = choice.name;
    variant.scratch_bytes = choice.scratch_bytes;
    variant.in_place = choice.in_place;
  }
}

void choose_kernels(PlacedGraph& plan, const KernelChooser& chooser) {
  std::optional<Instances> instances;
  if (has_gpus(plan.cluster)) instances.emplace(plan);
  std::vector<std::size_t> group_of(plan.cluster.devices.size());
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (int d : plan.groups[g].devices) group_of[static_cast<std::size_t>(d)] = g;
  for (PlanNode& n : plan.nodes) {
    if (n.scope == Scope::tower) {
      for (std::size_t c = 0; c < plan.classes.size(); ++c) {
        if (n.phases[c] < 0) continue;
        int tower = plan.classes[c].towers[0];
        choose(plan, n, chooser, plan.share(tower), plan.cluster.devices[static_cast<std::size_t>(plan.device_of(n, tower))].kernels(), n.by_class[c]);
      }
    } else {
      for (std::size_t g = 0; g < plan.groups.size(); ++g)
        if (!n.by_group[g].outputs.empty()) choose(plan, n, chooser, plan.share(-1), plan.cluster.devices[static_cast<std::size_t>(plan.groups[g].devices[0])].kernels(), n.by_group[g]);
    }
    if (!instances || !is_join(n)) continue;
    const std::vector<std::int64_t> landed = landed_bytes(*instances, n);
    for (std::size_t h = 0; h < landed.size(); ++h) {
      std::int64_t& scratch = n.by_group[group_of[static_cast<std::size_t>(n.holders.get()[h])]].scratch_bytes;
      scratch = std::max(scratch, landed[h]);
    }
  }
}

/// Nodes that are on a GPU and have no kernel there. UserError for one that its user requested there.
void add_lacking(const PlacedGraph& plan, std::set<std::string>& out) {
  auto look = [&](const PlanNode& n, const Variant& v, int device) {
    const DeviceId& id = plan.cluster.devices[static_cast<std::size_t>(device)].id;
    if (id.kind != "gpu" || v.kernel != kReference) return;
    if (n.reason == "requested")
      throw UserError(fmt::format("[{}] '{}' is requested on {}, but GPUs have no kernel for it; request cpu:0 for it, or nothing: then it runs on the host, with the copies that this takes", n.op, n.name, to_string(id)));
    out.insert(n.name);
  };
  for (const PlanNode& n : plan.nodes) {
    if (n.scope == Scope::tower) {
      for (std::size_t c = 0; c < plan.classes.size(); ++c)
        if (n.phases[c] >= 0) look(n, n.by_class[c], plan.device_of(n, plan.classes[c].towers[0]));
    } else {
      for (std::size_t g = 0; g < plan.groups.size(); ++g)
        if (!n.by_group[g].outputs.empty()) look(n, n.by_group[g], plan.groups[g].devices[0]);
    }
  }
}

/// Puts nodes on the host, whatever the rules say.
void put_on_host(PlacedGraph& plan, const std::set<std::string>& names) {
  const int host = plan.cluster.host();
  for (PlanNode& n : plan.nodes) {
    if (!names.contains(n.name)) continue;
    n.reason = "GPUs have no kernel for it";
    if (n.scope != Scope::tower) {
      n.holders = {host};
      continue;
    }
    std::vector<int> devices = plan.devices(n);
    for (int& d : devices)
      if (d >= 0 && plan.cluster.devices[static_cast<std::size_t>(d)].id.kind == "gpu") d = host;
    auto at = std::find(plan.vectors.begin(), plan.vectors.end(), devices);
    n.vector = static_cast<int>(at - plan.vectors.begin());
    if (at == plan.vectors.end()) plan.vectors.push_back(std::move(devices));
  }
}

/// All but memory; `on_host`: nodes that GPUs cannot compute.
PlacedGraph place_nodes(TowerGraph towers, const Placement& placement, const Cluster& cluster, const PlaceOptions& options, const std::set<std::string>& on_host) {
  PlacedGraph plan;
  static_cast<TowerGraph&>(plan) = std::move(towers);
  plan.placement = placement;
  plan.cluster = cluster;
  assign(plan, options.must_decide);
  put_on_host(plan, on_host);
  set_order(plan);
  donate(plan);
  hold_sources(plan, on_host);
  insert_gathers(plan);
  insert_pre_aggregates(plan);
  insert_copies(plan);
  set_order(plan);  // anew: moves stand in it too
  set_classes(plan);
  set_phases(plan);
  set_streams(plan);
  set_waits(plan);
  set_groups(plan);
  choose_kernels(plan, options.kernels);
  return plan;
}

}  // namespace

TowerGraph expand_for(std::shared_ptr<const Graph> graph, const Division& d, std::int64_t batch, const PlaceOptions& options) {
  ExpandOptions e{d.towers, batch, d.combine, d.threads, options.updates, options.fetches, {}, {}};
  if (options.groups) e.groups = options.groups(*graph);
  return expand(std::move(graph), e);
}

PlacedGraph place(TowerGraph towers, const Placement& placement, const Cluster& cluster, const PlaceOptions& options) {
  check_devices(towers, placement.rules, cluster);
  std::set<std::string> on_host;
  PlacedGraph plan;
  recompute(towers, placement.recompute);
  for (bool gpus = has_gpus(cluster), again = true; again;) {
    plan = place_nodes(gpus ? towers : std::move(towers), placement, cluster, options, on_host);
    std::size_t before = on_host.size();
    if (gpus && options.kernels) add_lacking(plan, on_host);
    again = on_host.size() != before;
  }
  plan_memory(plan);
  plan.arithmetic_hash = arithmetic_hash(plan);
  plan.isa = options.isa;
  plan.libraries = options.libraries;
  return plan;
}

PlacedGraph place(std::shared_ptr<const Graph> graph, const Placement& p, const Cluster& cluster, const PlaceOptions& options) {
  return place(expand_for(std::move(graph), {p.towers, p.combine, p.threads, p.order}, p.batch, options), p, cluster, options);
}

PlacedGraph place(std::shared_ptr<const Graph> graph, const Strategy& strategy, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options) {
  if (!strategy.candidates.empty()) return place(graph, choose(graph, strategy.candidates, cluster, batch, options).front().strategy, cluster, batch, options);
  Division d = strategy.divide(*graph, cluster);
  if (d.threads == 0) d.threads = std::max(1, cluster.cores / d.towers);
  TowerGraph towers = expand_for(graph, d, batch, options);
  Placement p{d.towers, batch, d.combine, d.threads, options.rules, d.order, options.recompute.nodes, strategy.name};
  if (int stretches = options.recompute.stretches ? options.recompute.stretches : d.recompute; stretches && p.recompute.empty()) p.recompute = nodes_to_recompute(towers, stretches);
  const Rules rules = strategy.assign(towers, cluster, options.costs ? *options.costs : CostTable{});
  std::set<DeviceId> full;
  for (;;) {
    const Requests requests = requests_of(towers, cluster, options, full);
    p.rules = options.rules;
    p.rules.insert(p.rules.end(), requests.rules.begin(), requests.rules.end());
    p.rules.insert(p.rules.end(), rules.begin(), rules.end());
    PlacedGraph plan = place(options.soft ? towers : std::move(towers), p, cluster, options);
    if (options.soft && add_full(plan, requests, full)) continue;
    note_unmet(plan, requests, options);
    return plan;
  }
}

namespace {

std::string hex(XXH128_hash_t h) { return fmt::format("{:016x}{:016x}", h.high64, h.low64); }

std::string text_of(const Attributes& attributes) {
  std::string out;
  for (const auto& [name, value] : attributes.entries()) {
    const TensorRef* tensor = std::get_if<TensorRef>(&value);
    out += name + "=" + (tensor ? to_string((*tensor)->type()) + hex(XXH3_128bits((*tensor)->raw(), (*tensor)->bytes().size())) : to_string(value)) + ";";
  }
  return out;
}

bool changes_nothing(const PlanNode& n) { return n.op == kCopy || n.op == kPreAggregate || n.op == kStore || n.op == kAllGather; }

/// Kernels by the rows they work on; those that give the same bits whatever they are called count by their op.
std::string kernels_of(const PlacedGraph& plan, const PlanNode& n) {
  std::set<std::string> out;
  if (n.def && n.def->exact) return "";
  for (std::size_t c = 0; c < n.by_class.size(); ++c)
    if (!n.by_class[c].kernel.empty()) out.insert(fmt::format("{}:{}", plan.share(plan.classes[c].towers[0]).rows, n.by_class[c].kernel));
  for (const Variant& v : n.by_group)
    if (n.scope != Scope::tower && !v.kernel.empty()) out.insert(v.kernel);
  return fmt::format("{}", fmt::join(out, " "));
}

}  // namespace

std::string arithmetic_hash(const PlacedGraph& plan) {
  std::string text = fmt::format("{} {} {} {}\n", plan.towers, plan.batch, to_string(plan.combine), plan.threads);
  // The value itself, whatever brings it here: moves change no bits, and a device's join is along the same tree.
  auto source = [&](ValueIndex v) {
    while (changes_nothing(plan.maker(v))) v = plan.maker(v).inputs[0];
    return plan.maker(v).again ? plan.graph->name_of({plan.maker(v).user, plan.value(v).output}) : plan.value(v).name;
  };
  for (const PlanNode& n : plan.nodes) {
    if (changes_nothing(n) || n.op == kFetch || n.again) continue;
    text += fmt::format("{} {}(", n.name, n.op);
    for (ValueIndex v : n.inputs) text += (v < 0 ? "-" : source(v)) + ",";
    text += ")" + text_of(n.attributes);
    for (const Member& m : n.members) {
      const Node& member = plan.graph->node(m.node);
      text += fmt::format("[{} {} {}]", member.name, member.op->name, text_of(member.attributes));
    }
    for (ValueIndex v : n.outputs) text += to_string(plan.value(v).type) + to_string(plan.value(v).state);
    text += " " + kernels_of(plan, n) + "\n";
  }
  for (auto [variable, u] : plan.updates) text += fmt::format("{} becomes {}\n", plan.value(variable).name, source(u));
  return hex(XXH3_128bits(text.data(), text.size()));
}

}  // namespace belfry
