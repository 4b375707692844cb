#include <belfry/placer/requests.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/glob.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/assign.h>

namespace belfry {

namespace {

/// Whether the rule decides all of a node that is called so.
bool covers(const PlacementRule& rule, const std::string& name, bool in_tower, int towers) {
  auto [tower, rest] = split_match(rule.match);
  return (tower == -2 || (in_tower && (tower == -1 || towers == 1))) && glob_matches(rest, name);
}

bool has_kernel(const TowerGraph& tg, const PlanNode& n, const DeviceId& device, const PlaceOptions& options) {
  if (device.kind != "gpu" || !options.kernels || (!n.def && n.op != kFused) || n.scope == Scope::state || n.op == kInput) return true;
  const Share share = tg.share(n.scope == Scope::tower ? 0 : -1);
  auto types = [&](const std::vector<ValueIndex>& values) {
    std::vector<LocalType> out;
    for (ValueIndex v : values) out.push_back(v < 0 ? LocalType{} : local_type(tg.value(v), share));
    return out;
  };
  try {
    return options.kernels({tg, n, types(n.inputs), types(n.outputs), device.kind, tg.threads}).name != "reference";
  } catch (const UserError&) {  // none are known
    return false;
  }
}

}  // namespace

Requests requests_of(const TowerGraph& tg, const Cluster& cluster, const PlaceOptions& options, const std::set<DeviceId>& full) {
  Requests out;
  out.rules = rules_of_requests(*tg.graph);
  if (out.rules.empty()) return out;
  std::map<std::string, const PlanNode*> nodes;
  for (const PlanNode& n : tg.nodes) nodes.emplace(n.name, &n);
  std::map<NodeId, bool> dropped;  // a node without its request
  std::erase_if(out.rules, [&](const PlacementRule& r) {
    const NodeId id = tg.graph->find_node(r.match);
    const Node& node = tg.graph->node(id);
    const DeviceId& device = r.devices[0];
    if (!node.device) return dropped[id] = options.soft && dropped[node.of];
    const auto known = nodes.find(r.match);
    const PlanNode* n = known == nodes.end() ? nullptr : known->second;
    const bool there = cluster.find(device) >= 0;
    if (there && !options.soft) return false;
    const auto update = tg.graph->updates.find(id);  // is where its variable is
    const auto updates = update == tg.graph->updates.end() ? nodes.end() : nodes.find(tg.graph->node(update->second.node).name);
    const bool lacks = there && ((n && !has_kernel(tg, *n, device, options)) || (updates != nodes.end() && !has_kernel(tg, *updates->second, device, options)));
    const std::string why = !there ? "is not among the devices" : full.contains(device) ? "has not the memory for it" : lacks ? "has no kernel for it" : "";
    if (why.empty()) return false;
    auto before = [&](const PlacementRule& rule) { return covers(rule, r.match, n->scope == Scope::tower, tg.towers); };
    const bool decides = n && std::none_of(options.rules.begin(), options.rules.end(), before);
    if (!options.soft && !decides) return false;
    if (!options.soft)
      throw UserError(fmt::format("[{}] '{}' is requested on {}, which is not among the devices of this plan: {}; request one of these, name it with --devices, or give --soft-placement: then the "
                                  "strategy places what cannot have its request", node.op->name, r.match, to_string(device), to_string(cluster.ids())));
    if (decides) out.unmet.emplace(r.match, fmt::format("requested on {}, which {}", to_string(device), why));
    return dropped[id] = true;  // one that is fused away too: what follows it would follow it there
  });
  return out;
}

bool add_full(const PlacedGraph& plan, const Requests& requests, std::set<DeviceId>& full) {
  const std::vector<DeviceBytes> bytes = device_bytes(plan);
  const std::size_t before = full.size();
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) {
    const ClusterDevice& device = plan.cluster.devices[d];
    const bool requested = std::any_of(requests.rules.begin(), requests.rules.end(), [&](const PlacementRule& r) { return r.devices[0] == device.id; });
    if (requested && bytes[d].total() > device.memory) full.insert(device.id);
  }
  return full.size() != before;
}

void note_unmet(PlacedGraph& plan, const Requests& requests, const PlaceOptions& options) {
  if (requests.unmet.empty()) return;
  for (PlanNode& n : plan.nodes) {
    if ((n.inserted && !n.again) || n.op == kInput) continue;  // an input lives on the host whatever was requested
    if (auto why = requests.unmet.find(plan.graph->node(n.user).name); why != requests.unmet.end()) n.reason = why->second + "; " + n.reason;
  }
  if (!options.warn) return;
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& [name, why] : requests.unmet) by_reason[why].push_back(name);
  for (const auto& [why, names] : by_reason)
    options.warn(fmt::format("'{}'{} {} {}: placed by the strategy instead", names[0], names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "", names.size() > 1 ? "are" : "is", why));
}

void check_devices(const TowerGraph& tg, const std::vector<PlacementRule>& rules, const Cluster& cluster) {
  for (std::size_t i = 0; i < rules.size(); ++i)
    for (const DeviceId& device : rules[i].devices) {
      if (cluster.find(device) >= 0) continue;
      auto [tower, rest] = split_match(rules[i].match);
      for (const PlanNode& n : tg.nodes) {
        const bool in_tower = n.scope == Scope::tower;
        if (n.op == kInput || n.op == kFetch || n.inserted || (tower != -2 && !in_tower) || !glob_matches(rest, n.name)) continue;
        if (std::any_of(rules.begin(), rules.begin() + static_cast<std::ptrdiff_t>(i), [&](const PlacementRule& before) { return covers(before, n.name, in_tower, tg.towers); })) continue;
        throw UserError(fmt::format("[{}] '{}' goes to {} by the rule \"{}\" ({}), which is not among the devices of this plan: {}; name it with --devices where the graph is placed (a plan keeps those that it has), or change the rule", n.op, n.name,
                                    to_string(device), rules[i].match, rules[i].reason, to_string(cluster.ids())));
      }
    }
}

}  // namespace belfry
