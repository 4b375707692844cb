#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/lower.h>
#include <belfry/placer/placer_internal.h>

namespace belfry {

namespace {

constexpr const char* kReference = "reference";

/// Of ranges, those of the first holder, which has the longest.
std::vector<LocalType> local_types(const PlacedGraph& plan, const PlanNode& n, const std::vector<ValueIndex>& values, const Share& share) {
  std::vector<LocalType> out;
  for (ValueIndex v : values) out.push_back(v < 0 ? LocalType{} : n.ranged ? type_on(plan, n, v, n.holders.front()) : local_type(plan.value(v), share));
  return out;
}

bool has_gpus(const Cluster& cluster) {
  return std::any_of(cluster.devices.begin(), cluster.devices.end(), [](const ClusterDevice& d) { return d.id.kind == "gpu"; });
}

/// Nodes of which several devices compute the same value, by kernels whose bits may differ.
void add_unlike(const PlacedGraph& plan, FixedNodes& out) {
  for (const PlanNode& n : plan.nodes) {
    if (n.scope == Scope::tower || n.scope == Scope::state || n.ranged || n.holders.size() < 2 || is_exact(plan, n)) continue;
    const FixedNode first_alone{FixedTo::first, "its kernels on these devices may give unlike bits: one computes it for all"};
    if (is_nondeterministic(n)) out.try_emplace(n.name, first_alone);
    const std::string* first = nullptr;
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      const std::string& kernel = n.by_group[g].kernel;
      if (kernel.empty()) continue;
      if (first && *first != kernel) out.try_emplace(n.name, first_alone);
      first = &kernel;
    }
  }
}

}  // namespace

Placer::Placer(TowerGraph towers, const Cluster& cluster, const PlaceOptions& options)
    : options_(options), gpus_(has_gpus(cluster)), values_(towers.values.size()), names_(towers), read_by_(readers_of(towers)), kernels_(values_) {
  cluster.check();
  static_cast<TowerGraph&>(plan_) = std::move(towers);
  plan_.cluster = cluster;
  apart_.emplace(plan_.cluster);
  for (const PlanNode& n : plan_.nodes) {
    inputs_.push_back(n.inputs);
    if (is_op(n, kFetch)) hows_.push_back(n.attributes);
  }
  for (const ClusterDevice& d : cluster.devices) kinds_.push_back(d.kernels());
}

/// The tower graph again: without what lowering put in.
void Placer::reset() {
  std::size_t kept = 0;
  for (PlanNode& n : plan_.nodes) {
    if (static_cast<std::size_t>(n.outputs[0]) >= values_) spare_.nodes.push_back(std::move(n));
    else if (PlanNode& to = plan_.nodes[kept++]; &to != &n) to = std::move(n);
  }
  plan_.nodes.resize(kept);
  for (std::size_t v = values_; v < plan_.values.size(); ++v) spare_.values.push_back(std::move(plan_.values[v]));
  plan_.values.resize(values_);
  std::size_t fetches = 0;
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
    PlanNode& n = plan_.nodes[i];
    n.inputs = inputs_[i];
    if (is_op(n, kFetch)) n.attributes = hows_[fetches++];
    n.ranged = n.once = false;
    n.sum = SumWay::direct;
    n.bucket = 0;
    n.vector = n.owners = -1;
    n.holders = n.idle = {};
    n.donates.clear();
    n.phases.clear();
  }
  reindex(plan_);
  plan_.vectors.clear();
}

PlacedGraph& Placer::place(const Placement& placement, std::size_t must_decide) {
  for (once_ = true;; once_ = false) {
    place_for_time(placement, must_decide);
    plan_memory(plan_, *memory_);
    // What is made once takes its bytes all the time: where there is no room for that, each step makes it.
    const bool keeps = std::any_of(plan_.nodes.begin(), plan_.nodes.end(), [](const PlanNode& n) { return n.once; });
    if (!keeps || over_memory(plan_).empty()) break;
  }
  once_ = true;
  return plan_;
}

PlacedGraph& Placer::place_for_time(const Placement& placement, std::size_t must_decide) {
  const Placement& p = placement;
  plan_.placement = {p.towers, p.batch, p.combine, p.threads, {}, p.order, p.recompute, p.strategy, p.collectives, p.options};
  FixedNodes fixed;
  for (bool again = true; again;) {
    reset();
    again = place_nodes(p.rules, must_decide, fixed);
  }
  return plan_;
}

/// True where more nodes are fixed than before: all begins anew.
bool Placer::place_nodes(const std::vector<PlacementRule>& rules, std::size_t must_decide, FixedNodes& fixed) {
  assign(plan_, rules, names_, read_by_, must_decide);
  if (!fixed.empty()) fix(fixed);
  join_on_host(plan_);
  set_order(plan_);
  const std::size_t before = plan_.nodes.size();
  donate(plan_, read_by_);
  hold_sources(plan_, plan_.nodes.size() == before ? read_by_ : readers_of(plan_), fixed);
  insert_gathers(plan_);
  insert_accumulations(plan_, options_.accumulate_all);
  insert_pre_aggregates(plan_);
  insert_group_sums(plan_);
  insert_host_sums(plan_);
  insert_copies(plan_, *apart_, spare_);
  instances_.emplace(plan_);
  readers_ = readers_of(plan_);
  if (once_) set_once(plan_);
  set_order(plan_);  // anew: moves stand in it too
  check_buckets(plan_, rules);
  set_classes(plan_);
  set_phases(plan_, *instances_, readers_);
  set_streams(plan_, readers_);
  set_waits(plan_, *instances_);
  memory_ = set_groups(plan_, *instances_, readers_);
  choose_kernels();
  const std::size_t known = fixed.size();
  if (gpus_ && options_.kernels) {
    add_lacking(fixed);
    if (fixed.size() == known) add_unlike(plan_, fixed);
  }
  return fixed.size() != known;
}

/// Nodes that are on a GPU and have no kernel there. UserError for one that its user requested there.
void Placer::add_lacking(FixedNodes& out) const {
  auto look = [&](const PlanNode& n, const Variant& v, int device, const Share& share) {
    const DeviceId& id = plan_.cluster.devices[static_cast<std::size_t>(device)].id;
    if (id.kind != "gpu" || v.kernel != kReference) return;
    const std::vector<Known>& all = kernels_[static_cast<std::size_t>(n.outputs[0])];
    const std::size_t ranges = n.ranged ? n.holders.size() : 0;
    const auto known = std::find_if(all.begin(), all.end(), [&](const Known& k) { return k.rows == share.rows && k.ranges == ranges && k.kind == "gpu" && !k.choice.refused.empty(); });
    const std::string lacks = fmt::format("GPUs have no kernel for it{}{}", known == all.end() ? "" : ": ", known == all.end() ? "" : known->choice.refused);
    if (plan_.graph->node(n.user).device == id)
      throw UserError(fmt::format("[{}] '{}' is requested on {}, but {}; request cpu:0 for it, or nothing: then it runs on the host, with the copies that this takes", n.op, n.name, to_string(id), lacks));
    out[n.name] = {FixedTo::host, lacks};
  };
  for (const PlanNode& n : plan_.nodes) {
    if (n.scope == Scope::tower) {
      for (std::size_t c = 0; c < plan_.classes.size(); ++c)
        if (n.phases[c] >= 0) look(n, n.by_class[c], plan_.device_of(n, plan_.classes[c].towers[0]), plan_.share(plan_.classes[c].towers[0]));
    } else {
      for (std::size_t g = 0; g < plan_.groups.size(); ++g)
        if (!n.by_group[g].outputs.empty()) look(n, n.by_group[g], plan_.groups[g].devices[0], plan_.share(-1));
    }
  }
}

/// Whatever the rules say.
void Placer::fix(const FixedNodes& nodes) {
  const int host = plan_.cluster.host();
  for (PlanNode& n : plan_.nodes) {
    const auto at = nodes.find(n.name);
    if (at == nodes.end()) continue;
    n.reason = at->second.why;
    if (at->second.to == FixedTo::first) {
      n.holders = {n.holders.front()};
      continue;
    }
    if (n.scope != Scope::tower) {
      n.holders = {host};
      continue;
    }
    auto off_gpus = [&](std::vector<int> devices) {
      for (int& d : devices)
        if (d >= 0 && plan_.cluster.devices[static_cast<std::size_t>(d)].id.kind == "gpu") d = host;
      return devices;
    };
    n.vector = vector_number(plan_, off_gpus(plan_.devices(n)));
    if (!n.idle.empty()) n.idle = off_gpus(n.idle);
  }
}

void Placer::choose(const PlanNode& n, const Share& share, const std::string& kind, Variant& variant) {
  if (n.scope == Scope::state || is_op(n, kInput)) {
    variant.kernel = n.scope == Scope::state ? "" : "feed";
  } else if (!n.def && !is_op(n, kFused)) {
    variant.kernel = kernel_of_moves(plan_, n);  // structural nodes have one, mostly of their own name
  } else if (!options_.kernels) {
    variant.kernel = kReference;
  } else {
    const std::size_t ranges = n.ranged ? n.holders.size() : 0;
    std::vector<Known>& all = kernels_[static_cast<std::size_t>(n.outputs[0])];
    auto known = std::find_if(all.begin(), all.end(), [&](const Known& k) { return k.rows == share.rows && k.ranges == ranges && k.kind == kind; });
    if (known == all.end())
      known = all.insert(known, {share.rows, ranges, kind, options_.kernels({plan_, n, local_types(plan_, n, n.inputs, share), local_types(plan_, n, n.outputs, share), kind, plan_.threads})});
    variant.kernel = known->choice.name;
    variant.scratch_bytes = known->choice.scratch_bytes;
    variant.in_place = known->choice.in_place;
  }
}

void Placer::choose_kernels() {
  std::vector<std::size_t> group_of(gpus_ ? plan_.cluster.devices.size() : 0);
  for (std::size_t g = 0; gpus_ && g < plan_.groups.size(); ++g)
    for (int d : plan_.groups[g].devices) group_of[static_cast<std::size_t>(d)] = g;
  std::vector<Share> shares;
  for (const TowerClass& c : plan_.classes) shares.push_back(plan_.share(c.towers[0]));
  const Share whole = plan_.share(-1);
  for (PlanNode& n : plan_.nodes) {
    if (n.scope == Scope::tower) {
      for (std::size_t c = 0; c < plan_.classes.size(); ++c)
        if (n.phases[c] >= 0) choose(n, shares[c], kinds_[static_cast<std::size_t>(plan_.device_of(n, plan_.classes[c].towers[0]))], n.by_class[c]);
    } else {
      n.by_group.each([&](std::size_t g, Variant& v) {
        if (!v.outputs.empty()) choose(n, whole, kinds_[static_cast<std::size_t>(plan_.groups[g].devices[0])], v);
      });
    }
    if (!gpus_ || (!is_join(n) && !is_op(n, kPreAggregate)) || kernel_of_moves(plan_, n) != n.op) continue;
    const std::vector<std::int64_t> landed = landed_bytes(*instances_, n);
    for (std::size_t h = 0; h < landed.size(); ++h) {
      std::int64_t& scratch = n.by_group[group_of[static_cast<std::size_t>(n.holders.get()[h])]].scratch_bytes;
      scratch = std::max(scratch, landed[h]);
    }
  }
}

}  // namespace belfry
