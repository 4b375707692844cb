#include <algorithm>
#include <map>
#include <tuple>

#include <belfry/frontends/json/plan_file.h>

namespace belfry {

namespace {

/// Devices that, dealt to all towers in contiguous shares, give the vector; towers of which nothing is known go anywhere. Where towers that have rows,
/// `present` of them, are not in it, their number was raised by hand: its devices are then dealt to all as they were to those that are.
std::vector<int> dealt_devices(const std::vector<int>& vector, int present) {
  std::vector<int> runs, whole;
  std::size_t known = 0;
  for (std::size_t t = 0; t < vector.size(); ++t) {
    const int d = vector[t];
    if (d >= 0) known = t + 1;
    if (d >= 0 && (runs.empty() || runs.back() != d)) runs.push_back(d);
    whole.push_back(d >= 0 || whole.empty() ? d : whole.back());
  }
  auto deals = [&](const std::vector<int>& devices, std::size_t towers) {
    for (std::size_t k = 0; k < devices.size(); ++k) {
      Range r = share_of(static_cast<std::int64_t>(towers), static_cast<std::int64_t>(devices.size()), static_cast<std::int64_t>(k));
      for (std::int64_t t = r.first; t < r.past; ++t)
        if (int d = vector[static_cast<std::size_t>(t)]; d >= 0 && d != devices[k]) return false;
    }
    return true;
  };
  return deals(runs, vector.size()) || (known < static_cast<std::size_t>(present) && deals(runs, known)) ? runs : whole;
}

/// Each once: what all towers of a plan go by does for what few of them share.
std::vector<int> once(const std::vector<int>& devices) {
  std::vector<int> out;
  for (int d : devices)
    if (std::find(out.begin(), out.end(), d) == out.end()) out.push_back(d);
  return out;
}

/// Devices, reason, in ranges, way of a sum, bucket.
using Decision = std::tuple<std::vector<int>, std::string, bool, SumWay, int>;

/// Of those that every node may follow: how a sum is made is a rule for sums alone, and not all can be in ranges.
const Decision* most_frequent(const std::map<Decision, int>& counts) {
  const Decision* out = nullptr;
  int most = 0;
  for (const auto& [decision, count] : counts)
    if (const auto& [devices, reason, ranged, way, bucket] = decision; count > most && !ranged && way == SumWay::direct && !bucket) out = &decision, most = count;
  return out;
}

/// What place() itself puts in or decides: it has no rule.
bool is_derived(const PlacedGraph& plan, const PlanNode& n, const NumberLists& readers) {
  if (n.op == kInput || n.op == kFetch || changes_nothing(n) || n.again) return true;
  if (n.scope != Scope::shared || !n.def || !n.def->source) return false;
  return std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueIndex v) { return !readers[static_cast<std::size_t>(v)].empty(); }) && !plan.cluster.devices.empty();
}

}  // namespace

Placement placement_of(const PlacedGraph& plan) {
  Placement out{plan.towers, plan.batch, plan.combine, plan.threads, {}, plan.placement.order, {}, plan.placement.strategy, plan.placement.collectives, plan.placement.options};
  for (const PlanNode& n : plan.nodes)
    if (n.again)
      for (const Member& m : has_bits_of_members(plan, n) ? n.members : std::vector<Member>{{n.user}}) out.recompute.push_back(plan.graph->node(m.node).name);
  auto readers = readers_of(plan);
  auto decision = [&](const PlanNode& n) { return Decision{n.scope == Scope::tower ? dealt_devices(devices_of_towers(plan, n), plan.present()) : n.holders.get(), n.reason, n.ranged, n.sum, n.bucket}; };
  std::map<Decision, int> in_towers, outside;
  for (const PlanNode& n : plan.nodes)
    if (!is_derived(plan, n, readers)) ++(n.scope == Scope::tower ? in_towers : outside)[decision(n)];
  auto rule = [&](std::string match, const Decision& d) {
    PlacementRule r{std::move(match), {}, std::get<1>(d), std::get<2>(d), std::get<3>(d), std::get<4>(d)};
    for (int i : std::get<0>(d))
      if (i >= 0) r.devices.push_back(plan.cluster.devices[static_cast<std::size_t>(i)].id);
    out.rules.push_back(std::move(r));
  };
  std::set<std::string_view> names;
  for (const PlanNode& n : plan.nodes) names.insert(n.name);
  const Decision *tower_rest = most_frequent(in_towers), *rest = most_frequent(outside);
  for (const PlanNode& n : plan.nodes) {
    if (is_derived(plan, n, readers)) continue;
    bool tower = n.scope == Scope::tower;
    const Decision* others = tower ? tower_rest : rest;
    const Decision d = decision(n);
    if (others && d == *others) continue;
    auto named = [&](const std::string& name) { rule(tower ? "tower_*/" + name : name, d); };
    named(n.name);
    if (!has_bits_of_members(plan, n)) continue;  // whose members may stand alone some day
    for (const Member& m : n.members)
      if (const std::string& name = plan.graph->node(m.node).name; m.node != n.user && !names.contains(name)) named(name);
  }
  if (tower_rest) rule("tower_*/**", *tower_rest);
  Decision last = rest ? *rest : tower_rest ? *tower_rest : Decision{{plan.cluster.host()}, "nothing else is placed", false, SumWay::direct, 0};
  std::get<0>(last) = once(std::get<0>(last));
  rule("**", last);
  return out;
}

PlanRequest request_of(const PlacedGraph& plan) {
  PlanRequest out;
  out.updates = !plan.updates.empty();
  for (const auto& [name, v] : plan.fetches) {
    ValueIndex at = plan.maker(v).inputs.at(0);
    for (std::size_t steps = 0; steps < plan.nodes.size() && plan.maker(at).inserted && !plan.maker(at).inputs.empty(); ++steps) at = plan.maker(at).inputs[0];
    out.fetches.emplace_back(name, plan.graph->at(plan.value(at).name));
  }
  for (const PlanNode& n : plan.nodes)
    if (std::optional<FusionGroup> group = group_of(plan, n)) out.groups.push_back(std::move(*group));
  return out;
}

}  // namespace belfry
