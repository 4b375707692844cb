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
  const std::vector<DeviceId> own = replaceable_devices(decisions.rules);
  std::vector<DeviceId> out = plan.cluster.ids();
  std::erase_if(out, [&](const DeviceId& d) { return std::find(own.begin(), own.end(), d) == own.end(); });
  return out;
}

/// `whose` rules they are, for words.
void replace(std::vector<PlacementRule>& rules, const std::vector<DeviceId>& own, const std::vector<DeviceId>& devices, const char* whose) {
  if (own.size() != devices.size())
    throw UserError(fmt::format("--devices {}: the {} on {}; name {} device{} in place of these, in their order, as {}, or move some nodes with --move", to_string(devices), whose, to_string(own), own.size(), own.size() == 1 ? "" : "s", sims_for(own.size())));
  std::map<DeviceId, DeviceId> instead;
  for (std::size_t k = 0; k < own.size(); ++k) instead.emplace(own[k], devices[k]);
  for (PlacementRule& r : rules) {
    for (DeviceId& d : r.devices)
      if (auto at = instead.find(d); at != instead.end()) d = at->second;
    if (split_match(r.match).first != -2) continue;  // towers are dealt, so that a device may have several
    const std::set<DeviceId> once(r.devices.begin(), r.devices.end());
    for (const DeviceId& d : once)
      if (std::count(r.devices.begin(), r.devices.end(), d) > 1) throw UserError(fmt::format("--devices {}: {} has a part of its own in the plan, beside {}: name another in place of these, as {}", to_string(devices), to_string(d), to_string(own), sims_for(own.size())));
  }
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

std::vector<DeviceId> named_devices(const std::vector<PlacementRule>& rules) {
  std::set<std::pair<bool, DeviceId>> all;
  for (const PlacementRule& r : rules)
    for (const DeviceId& d : r.devices) all.emplace(d.kind == "cpu", d);
  std::vector<DeviceId> out;
  for (const auto& [is_cpu, d] : all) out.push_back(d);
  return out;
}

std::vector<DeviceId> replaceable_devices(const std::vector<PlacementRule>& rules) {
  std::vector<DeviceId> out = named_devices(rules);
  auto is_cpu = [](const DeviceId& d) { return d.kind == "cpu"; };
  if (!std::all_of(out.begin(), out.end(), is_cpu)) std::erase_if(out, is_cpu);
  return out;
}

std::vector<DeviceId> replaceable_devices(const PlacedGraph& plan) { return replaceable(plan, placement_of(plan)); }

Placement with_stand_ins(const PlacedGraph& plan, const std::vector<DeviceId>& devices) {
  Placement out = placement_of(plan);
  replace(out.rules, replaceable(plan, out), devices, "plan's nodes are");
  return out;
}

std::vector<PlacementRule> with_stand_ins(std::vector<PlacementRule> rules, const std::vector<DeviceId>& devices) {
  const std::vector<DeviceId> own = replaceable_devices(rules);
  const bool has_all = std::all_of(own.begin(), own.end(), [&](const DeviceId& d) { return std::find(devices.begin(), devices.end(), d) != devices.end(); });
  if (!has_all) replace(rules, own, devices, "placement's rules are");
  return rules;
}

std::string sims_for(std::size_t count) { return count < 2 ? "sim:0" : fmt::format("sim:0-{}", count - 1); }

}  // namespace belfry
