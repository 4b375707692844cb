#include <belfry/frontends/json/plan_facts.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/json/plan_folds.h>
#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/moves.h>

namespace belfry {

std::vector<std::string> device_facts(const PlacedGraph& plan) {
  const std::vector<DeviceBytes> bytes = device_bytes(plan);
  const std::vector<std::int64_t> live = live_maxima(BoundPlan(plan));
  std::vector<std::string> out;
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) {
    const ClusterDevice& device = plan.cluster.devices[d];
    const DeviceBytes& b = bytes[d];
    LineWriter line;
    line.add("device", json_text(to_string(device.id)));
    for (const auto& [key, value] : {std::pair("bytes", b.total()), {"state", b.state}, {"shared", b.region}, {"kept", b.kept}, {"transient", b.transient}, {"live_values", live[d]}})
      line.add(key, std::to_string(value));
    if (b.landing) line.add("landing", std::to_string(b.landing));
    if (device.memory != ClusterDevice{}.memory) line.add("memory", std::to_string(device.memory));
    out.push_back(line.text());
  }
  return out;
}

std::vector<std::string> node_facts(const PlacedGraph& plan) {
  std::vector<std::string> out;
  for (const PlanNode& n : plan.nodes) {
    LineWriter line;
    line.add("name", json_text(n.name));
    line.add("op", json_text(n.op));
    line.add("devices", json_of_devices(all_devices(plan, n), plan.cluster));
    line.add("reason", json_text(n.reason));
    out.push_back(line.text());
  }
  return out;
}

std::vector<std::string> plan_facts(const PlacedGraph& plan) {
  std::vector<std::string> out, links;
  auto add = [&](const char* key, const std::string& json) { out.push_back(fmt::format("\"{}\": {}", key, json)); };
  for (const LinkLoad& l : link_bytes(plan)) links.push_back(json_list({json_text(l.from), json_text(l.to), std::to_string(l.bytes)}));
  add("net", json_text(plan.graph->name));
  add("strategy", json_text(plan.placement.strategy));
  add("options", json_text(plan.placement.options));
  add("batch", std::to_string(plan.batch));
  add("towers", std::to_string(plan.towers));
  add("threads", std::to_string(plan.threads));
  add("combine", json_text(to_string(plan.combine)));
  add("precision", json_text(name_of(plan.graph->precision)));
  add("arithmetic_hash", json_text(plan.arithmetic_hash));
  add("nondeterministic", std::to_string(std::count_if(plan.nodes.begin(), plan.nodes.end(), is_nondeterministic)));
  add("devices", json_lines(device_facts(plan)));
  add("links", json_lines(links));
  return out;
}

}  // namespace belfry
