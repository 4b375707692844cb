#include <belfry/frontends/session/stand_ins.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/error.h>

namespace belfry {

namespace {

std::vector<DeviceId> replaceable(const PlacedGraph& plan, const Placement& decisions) {
  const std::vector<DeviceId> named = named_devices(decisions);
  const bool cpus = std::all_of(named.begin(), named.end(), [](const DeviceId& d) { return d.kind == "cpu"; });
  std::vector<DeviceId> out;
  for (const ClusterDevice& d : plan.cluster.devices)
    if ((cpus || d.id.kind != "cpu") && std::find(named.begin(), named.end(), d.id) != named.end()) out.push_back(d.id);
  return out;
}

}  // namespace

std::vector<DeviceId> used_devices(const PlacedGraph& plan) {
  std::set<int> used;
  for (const PlanNode& n : plan.nodes) {
    const DeviceList on = all_devices(plan, n);
    used.insert(on.begin(), on.end());
  }
  return plan.cluster.ids({used.begin(), used.end()});
}

std::vector<DeviceId> named_devices(const Placement& placement) {
  std::set<std::pair<bool, DeviceId>> all;
  for (const PlacementRule& r : placement.rules)
    for (const DeviceId& d : r.devices) all.emplace(d.kind == "cpu", d);
  std::vector<DeviceId> out;
  for (const auto& [is_cpu, d] : all) out.push_back(d);
  return out;
}

std::vector<DeviceId> replaceable_devices(const PlacedGraph& plan) { return replaceable(plan, placement_of(plan)); }

Placement with_stand_ins(const PlacedGraph& plan, const std::vector<DeviceId>& devices) {
  Placement out = placement_of(plan);
  const std::vector<DeviceId> own = replaceable(plan, out);
  if (own.size() != devices.size())
    throw UserError(fmt::format("--devices {}: the plan's nodes are on {}; name {} device{} in place of these, in their order, as {}, or move some nodes with --move", to_string(devices), to_string(own), own.size(), own.size() == 1 ? "" : "s", sims_for(own.size())));
  std::map<DeviceId, DeviceId> instead;
  for (std::size_t k = 0; k < own.size(); ++k) instead.emplace(own[k], devices[k]);
  for (PlacementRule& r : out.rules) {
    for (DeviceId& d : r.devices)
      if (auto at = instead.find(d); at != instead.end()) d = at->second;
    if (split_match(r.match).first != -2) continue;  // towers are dealt, so that a device may have several
    const std::set<DeviceId> once(r.devices.begin(), r.devices.end());
    for (const DeviceId& d : once)
      if (std::count(r.devices.begin(), r.devices.end(), d) > 1) throw UserError(fmt::format("--devices {}: {} has a part of its own in the plan, beside {}: name another in place of these, as {}", to_string(devices), to_string(d), to_string(own), sims_for(own.size())));
  }
  return out;
}

std::string sims_for(std::size_t count) { return count < 2 ? "sim:0" : fmt::format("sim:0-{}", count - 1); }

}  // namespace belfry
