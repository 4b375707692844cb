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

/// Without the CPUs of this host, which stay, unless all are.
std::vector<DeviceId> others_than_cpus(std::vector<DeviceId> devices) {
  auto stays = [](const DeviceId& d) { return d.kind == "cpu" && d.host == 0; };
  if (!std::all_of(devices.begin(), devices.end(), stays)) std::erase_if(devices, stays);
  return devices;
}

std::vector<DeviceId> replaceable(const PlacedGraph& plan, const Placement& decisions) {
  const std::vector<DeviceId> own = replaceable_devices(decisions.rules);
  std::vector<DeviceId> out = plan.cluster.ids();
  std::erase_if(out, [&](const DeviceId& d) { return std::find(own.begin(), own.end(), d) == own.end(); });
  return out;
}

/// In place of devices with rows, those given in their order; in place of others, which have none yet, any of them.
std::vector<DeviceId> for_all(const std::vector<DeviceId>& own, const std::vector<DeviceId>& used, const std::vector<DeviceId>& devices) {
  std::vector<DeviceId> out;
  std::size_t next = 0, any = 0;
  for (const DeviceId& d : own) out.push_back(std::find(used.begin(), used.end(), d) != used.end() ? devices[next++] : devices[any++ % devices.size()]);
  return out;
}

/// `whose` rules they are, for words.
void replace(std::vector<PlacementRule>& rules, const std::vector<DeviceId>& own, const std::vector<DeviceId>& devices, const char* whose) {
  if (own.size() != devices.size())
    throw UserError(fmt::format("--devices {}: the {} on {}; name {} device{} in place of these, in their order, as {}", to_string(devices), whose, to_string(own), own.size(), own.size() == 1 ? "" : "s", sims_for(own.size())));
  std::map<DeviceId, DeviceId> instead;
  for (std::size_t k = 0; k < own.size(); ++k) instead.emplace(own[k], devices[k]);
  for (PlacementRule& r : rules) {
    std::map<DeviceId, std::set<DeviceId>> were;  // one that a file names twice is refused where it is placed
    for (DeviceId& d : r.devices) {
      const DeviceId was = d;
      if (auto at = instead.find(d); at != instead.end()) d = at->second;
      were[d].insert(was);
    }
    if (split_match(r.match).first != -2) continue;  // towers are dealt, so that a device may have several
    for (const auto& [d, of] : were)
      if (of.size() > 1) throw UserError(fmt::format("--devices {}: {} has a part of its own in the plan, beside {}: name another in place of these, as {}", to_string(devices), to_string(d), to_string(own), sims_for(own.size())));
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
  return others_than_cpus(named_devices(rules));
}

std::vector<DeviceId> replaceable_devices(const PlacedGraph& plan) { return replaceable(plan, placement_of(plan)); }

Placement with_stand_ins(const PlacedGraph& plan, const std::vector<DeviceId>& devices) {
  Placement out = placement_of(plan);
  const std::vector<DeviceId> own = replaceable(plan, out);
  std::vector<DeviceId> used = used_devices(plan);
  std::erase_if(used, [&](const DeviceId& d) { return std::find(own.begin(), own.end(), d) == own.end(); });
  const bool with_rows = !used.empty() && devices.size() == used.size() && used.size() < own.size();
  replace(out.rules, own, with_rows ? for_all(own, used, devices) : devices, used.size() < own.size() ? "plan's nodes, and towers without rows, are" : "plan's nodes are");
  return out;
}

std::vector<PlacementRule> with_stand_ins(std::vector<PlacementRule> rules, const std::vector<DeviceId>& devices) {
  const std::vector<DeviceId> own = replaceable_devices(rules);
  const bool has_all = std::all_of(own.begin(), own.end(), [&](const DeviceId& d) { return std::find(devices.begin(), devices.end(), d) != devices.end(); });
  if (!has_all) replace(rules, own, devices, "placement's rules are");
  return rules;
}

std::string sims_for(std::size_t count) { return count < 2 ? "sim:0" : fmt::format("sim:0-{}", count - 1); }

namespace {

bool has_gpu(const std::vector<DeviceId>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const DeviceId& d) { return d.kind == "gpu"; });
}

/// `how` they are named: "{0}" are sims, "{1}" the devices that they stand in for.
std::string offer(const std::vector<DeviceId>& own, const std::string& how) {
  const std::string sims = sims_for(own.size()), all = to_string(own);
  return fmt::format("{} can stand in for {} with the CPU's numbers: {}", sims, all, fmt::format(fmt::runtime(how), sims, all));
}

/// Where moves and requests alone name GPUs.
constexpr const char* kByHand = "cpu:0 can stand in for GPUs: name it where --move, or a request of the graph, names one";

/// Behind an offer of names.
std::string besides(const Graph& graph, const SessionOptions& options) {
  const std::vector<Node>& nodes = graph.nodes();
  const bool requests = !options.soft_placement && std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.device && n.device->kind == "gpu"; });
  return fmt::format("{}{}", options.cluster ? ", and leave --cluster out" : "", requests ? ", with --soft-placement, since nodes of the graph request GPUs" : "");
}

}  // namespace

std::string stand_ins_of(const PlacedGraph& plan, const SessionOptions& options) {
  if (has_gpu(named_devices(options.rules))) return kByHand;
  if (!options.devices.empty()) return offer(others_than_cpus(options.devices), "name {0} where {1} is named");
  return offer(replaceable_devices(plan), "belfry place PLAN --devices {0} -o NEW makes a plan for them of this one, and run, train, evaluate and predict take --devices {0} beside it");
}

std::string stand_ins_of(const Graph& graph, const std::vector<DeviceId>& devices, const SessionOptions& options) {
  if (!has_gpu(devices)) return kByHand;
  return offer(others_than_cpus(devices), (options.cluster ? "give --devices {0}, name them where {1} is named" : "name them where {1} is named") + besides(graph, options));
}

std::string stand_ins_of(const Graph& graph, const std::vector<PlacementRule>& rules, const SessionOptions& options) {
  const bool moves = has_gpu(named_devices(options.rules));
  if (!has_gpu(named_devices(rules))) return kByHand;
  return offer(replaceable_devices(rules), fmt::format("give --devices {{0}} beside the placement file{}", moves ? ", name them in --move too" : "") + besides(graph, options));
}

}  // namespace belfry
