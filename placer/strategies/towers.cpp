#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/links.h>
#include <belfry/graph/plan/readers.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/strategies/spread_internal.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

std::int64_t bytes_of(const Node& n) { return local_type(n.types[0], 1).bytes(); }

NodeId head_variable(const Graph& g, NodeId id) {
  while (g.node(id).of >= 0 && g.node(g.node(id).of).op->name == g.node(id).op->name) id = g.node(id).of;
  return id;
}

/// Shared nodes that lead to updates of one device's variables alone, by number: there their result is wanted.
std::map<int, std::size_t> led_to(const TowerGraph& tg, const std::map<std::string, std::size_t>& variables) {
  std::vector<std::set<std::size_t>> leads(tg.nodes.size());
  for (auto [variable, u] : tg.updates) leads[static_cast<std::size_t>(tg.value(u).maker)].insert(variables.at(tg.value(variable).name));
  std::map<int, std::size_t> out;
  for (std::size_t i = tg.nodes.size(); i-- > 0;) {
    const PlanNode& n = tg.nodes[i];
    if (n.scope != Scope::shared) continue;
    if (leads[i].size() == 1) out[static_cast<int>(i)] = *leads[i].begin();
    for (ValueIndex v : n.inputs)
      if (v >= 0) leads[static_cast<std::size_t>(tg.value(v).maker)].insert(leads[i].begin(), leads[i].end());
  }
  return out;
}

}  // namespace

Division one_per_device(const std::vector<DeviceId>& devices, int towers, Combine combine, int threads, Reduce reduction, Collectives collectives) {
  if (collectives == Collectives::fastest && reduction != Reduce::tree) throw UserError("collectives=fastest leaves the order of sums to a library: leave reduction out");
  return {towers ? towers : static_cast<int>(devices.size()), combine, threads, PhaseOrder::by_tower, 0, collectives};
}

bool adds_towers(const PlanNode& n) {
  if (!is_op(n, kAggregate)) return false;
  const std::string& how = n.attributes.text("how");
  return how == "sum" || how == "max" || how == "mean";
}

std::vector<DeviceId> leaders_of(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  const std::vector<int> group = link_groups(cluster);
  std::set<int> known;
  std::vector<DeviceId> out;
  for (const DeviceId& d : devices)
    if (known.insert(group[static_cast<std::size_t>(cluster.at(d))]).second) out.push_back(d);
  if (out.size() < 2 || out.size() == devices.size())
    throw UserError(fmt::format("reduction=hierarchical: the links say of {} that they are {}; it needs several groups of several devices, so take tree, or name other devices", to_string(devices),
                                out.size() < 2 ? "one group" : "groups of one device each"));
  return out;
}

std::vector<VariableHead> variable_heads(const Graph& g) {
  std::map<NodeId, std::int64_t> bytes;
  for (NodeId id : g.variables()) bytes[head_variable(g, id)] += bytes_of(g.node(id));
  std::vector<VariableHead> out;
  for (const auto& [id, b] : bytes) out.push_back({id, b});
  std::sort(out.begin(), out.end(), [&](const VariableHead& a, const VariableHead& b) { return std::pair(-a.bytes, g.node(a.node).name) < std::pair(-b.bytes, g.node(b.node).name); });
  return out;
}

Rules put_variables(const TowerGraph& tg, const std::vector<DeviceId>& devices, const std::vector<VariableHead>& heads, const std::vector<std::size_t>& device, const std::vector<std::string>& reasons, Rules out) {
  const Graph& g = *tg.graph;
  std::map<NodeId, std::size_t> at;  // per head its place in the lists
  for (std::size_t k = 0; k < heads.size(); ++k) at[heads[k].node] = k;
  std::map<std::string, std::size_t> of_name;
  std::map<std::string, std::string> reason;
  for (NodeId id : g.variables()) {
    const std::size_t k = at.at(head_variable(g, id));
    of_name[g.node(id).name] = device[k];
    reason[g.node(id).name] = reasons[k];
  }
  for (const auto& [name, d] : of_name) out.push_back({name, {devices[d]}, reason[name]});
  for (auto [i, d] : led_to(tg, of_name)) out.push_back({tg.nodes[static_cast<std::size_t>(i)].name, {devices[d]}, "it updates a variable there"});
  out.push_back({"**", {devices[0]}, "shared by variables of several devices"});
  return out;
}

Rules spread_over(const std::vector<DeviceId>& devices, const TowerGraph& tg, Rules out) {
  const std::vector<VariableHead> heads = variable_heads(*tg.graph);
  std::vector<std::int64_t> load(devices.size());
  std::vector<std::size_t> device;
  for (const VariableHead& h : heads) {
    const auto least = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    device.push_back(least);
    load[least] += h.bytes;
  }
  return put_variables(tg, devices, heads, device, std::vector<std::string>(heads.size(), "variables are spread by their bytes"), std::move(out));
}

Division Towers::divide(const Graph&, const Cluster&) const { return one_per_device(devices, towers, combine, threads); }

Rules Towers::assign(const TowerGraph& tg, const Cluster& cluster, const CostTable& costs) const {
  if (reduction != Reduce::tree && reduction != Reduce::hierarchical) throw UserError("[towers] each sum is on one device: its reduction can be tree or hierarchical");
  if (reduction == Reduce::hierarchical) leaders_of(cluster, devices);  // there must be some
  Rules out = {{"tower_*/**", devices, "a tower per device"}};
  std::vector<DeviceId> all = devices;
  if (std::find(all.begin(), all.end(), variables) == all.end()) all.push_back(variables);
  if (chosen) out = chosen_over(all, devices, tg, cluster, costs, std::move(out));
  else if (spread) out = spread_over(devices, tg, std::move(out));
  else out.push_back({"**", {variables}, "shared variables live on " + to_string(variables)});
  if (reduction == Reduce::tree) return out;
  Rules groups;
  for (const PlanNode& n : tg.nodes)
    if (adds_towers(n)) {
      auto rule = std::find_if(out.begin(), out.end(), [&](const PlacementRule& r) { return r.match == n.name || r.match == "**"; });
      groups.push_back({n.name, rule->devices, rule->reason + "; each link group adds its own first, along the tree", false, SumWay::groups});
    }
  groups.insert(groups.end(), out.begin(), out.end());
  return groups;
}

}  // namespace belfry
