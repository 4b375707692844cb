#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <belfry/placer/strategies/spread_internal.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

std::int64_t bytes_of(const Node& n) { return LocalType{n.types[0].dtype, extents_of(n.types[0].shape, 1)}.bytes(); }

/// Per variable the number of its device: the largest first, with the slots that follow it, to where least is.
std::map<std::string, std::size_t> spread_by_bytes(const Graph& g, std::size_t devices) {
  std::map<NodeId, std::int64_t> bytes;  // of a variable that follows no other, with those that follow it
  auto head = [&](NodeId id) {
    while (g.node(id).of >= 0 && g.node(g.node(id).of).op->name == g.node(id).op->name) id = g.node(id).of;
    return id;
  };
  for (NodeId id : g.variables()) bytes[head(id)] += bytes_of(g.node(id));
  std::vector<NodeId> order;
  for (const auto& [id, b] : bytes) order.push_back(id);
  std::sort(order.begin(), order.end(), [&](NodeId a, NodeId b) { return std::pair(-bytes[a], g.node(a).name) < std::pair(-bytes[b], g.node(b).name); });
  std::vector<std::int64_t> load(devices);
  std::map<NodeId, std::size_t> device;
  for (NodeId id : order) {
    auto least = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    device[id] = least;
    load[least] += bytes[id];
  }
  std::map<std::string, std::size_t> out;
  for (NodeId id : g.variables()) out[g.node(id).name] = device.at(head(id));
  return out;
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

Rules spread_over(const std::vector<DeviceId>& devices, const TowerGraph& tg, Rules out) {
  std::map<std::string, std::size_t> device = spread_by_bytes(*tg.graph, devices.size());
  for (const auto& [name, d] : device) out.push_back({name, {devices[d]}, "variables are spread by their bytes"});
  for (auto [i, d] : led_to(tg, device)) out.push_back({tg.nodes[static_cast<std::size_t>(i)].name, {devices[d]}, "it updates a variable there"});
  out.push_back({"**", {devices[0]}, "shared by variables of several devices"});
  return out;
}

Division Towers::divide(const Graph&, const Cluster&) const {
  return {towers ? towers : static_cast<int>(devices.size()), combine, threads, PhaseOrder::by_tower};
}

Rules Towers::assign(const TowerGraph& tg, const Cluster&) const {
  Rules out = {{"tower_*/**", devices, "a tower per device"}};
  if (!spread) {
    out.push_back({"**", {variables}, "shared variables live on " + to_string(variables)});
    return out;
  }
  return spread_over(devices, tg, std::move(out));
}

}  // namespace belfry
