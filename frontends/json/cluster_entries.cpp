#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/json/plan_folds.h>
#include <belfry/graph/plan/links.h>

namespace belfry {

namespace {

constexpr std::array<const char*, 7> kCosts = {"flops", "flops_tf32", "flops_half", "bandwidth", "launch", "efficiency", "overlap"};
std::array<double, 7> costs_of(const ClusterDevice& d) { return {d.flops, d.flops_tf32, d.flops_half, d.bandwidth, d.launch, d.efficiency, d.overlap}; }

double cost_of(const JsonDocument& d, const JsonValue& v, double most) {
  double out = d.real(v);
  if (!(out >= 0 && out <= most)) d.fail(v, fmt::format("is {}; it must be a number from 0 to {}", out, most));
  return out;
}

/// "devices", on each of so many "hosts" where that stands beside it.
std::vector<DeviceId> devices_on_hosts(JsonObject& line) {
  const JsonDocument& d = line.document;
  const JsonValue& text = line.at("devices");
  std::vector<DeviceId> ids = placed(d, text, [&] { return parse_devices(d.text(text)); });
  const JsonValue* hosts = line.find("hosts");
  if (!hosts) return ids;
  const std::int64_t count = d.integer(*hosts, 1, kMostDevices);
  std::vector<DeviceId> out;
  for (const DeviceId& id : ids)
    if (id.host) d.fail(text, "names a host beside \"hosts\", which stands for hosts from 0 on");
  for (std::int64_t h = 0; h < count && static_cast<std::int64_t>(out.size()) <= kMostDevices; ++h)
    for (DeviceId id : ids) {
      id.host = static_cast<int>(h);
      out.push_back(id);
    }
  return out;
}

bool reads_as_devices(const std::string& text) {
  try {
    return !parse_devices(text).empty();
  } catch (const UserError&) {
    return false;
  }
}

ClusterLink link_of(const JsonDocument& d, const JsonValue& v) {
  JsonObject line(d, v);
  ClusterLink out{devices_on_hosts(line), d.text(line.at("to"))};
  const JsonValue& bandwidth = line.at("bandwidth");
  out.bandwidth = cost_of(d, bandwidth, 1e18);
  if (out.bandwidth < 1) d.fail(bandwidth, "is no bandwidth: bytes a second, at least 1");
  if (const JsonValue* latency = line.find("latency")) out.latency = cost_of(d, *latency, 1);
  if (out.to.empty()) d.fail(line.at("to"), "names no space and no switch");
  line.done();
  return out;
}

}  // namespace

std::vector<std::string> cluster_entries(const Cluster& cluster) {
  std::vector<std::string> out = {fmt::format("\"cores\": {}", cluster.cores)}, lines, pairs;
  for (const auto& [a, b] : cluster.unlinked) pairs.push_back(json_list({json_text(a), json_text(b)}));
  if (!pairs.empty()) out.push_back("\"unlinked\": " + json_list(pairs));
  std::vector<std::string> memory, peers;
  for (const auto& group : cluster.peers) peers.push_back(json_text(to_string(group)));
  if (!peers.empty()) out.push_back("\"peers\": " + json_list(peers));
  for (std::int64_t bytes : cluster.host_memory) memory.push_back(std::to_string(bytes));
  if (!memory.empty()) out.push_back("\"host_memory\": " + json_list(memory));
  for (std::size_t i = 0; i < cluster.devices.size();) {
    auto own = [](const ClusterDevice& d) { return d.space == to_string(d.id); };
    auto like = [&](const ClusterDevice& a, const ClusterDevice& b) { return a.id.kind == b.id.kind && a.streams == b.streams && a.memory == b.memory && costs_of(a) == costs_of(b) && (own(a) ? own(b) : a.space == b.space); };
    const ClusterDevice& first = cluster.devices[i];
    std::vector<DeviceId> ids;
    for (; i < cluster.devices.size() && like(first, cluster.devices[i]); ++i) ids.push_back(cluster.devices[i].id);
    LineWriter line;
    line.add("devices", json_text(to_string(ids)));
    if (!own(first)) line.add("space", json_text(first.space));
    if (first.streams != 1) line.add("streams", std::to_string(first.streams));
    if (first.memory != ClusterDevice{}.memory) line.add("memory", std::to_string(first.memory));
    const auto costs = costs_of(first), unsaid = costs_of({});
    for (std::size_t k = 0; k < costs.size(); ++k)
      if (costs[k] != unsaid[k]) line.add(kCosts[k], json_real(costs[k]));
    lines.push_back(line.text());
  }
  std::vector<std::string> links;
  for (const ClusterLink& l : cluster.links) {
    LineWriter line;
    line.add("devices", json_text(to_string(l.devices)));
    line.add("to", json_text(l.to));
    line.add("bandwidth", json_real(l.bandwidth));
    if (l.latency != 0) line.add("latency", json_real(l.latency));
    links.push_back(line.text());
  }
  if (!links.empty()) out.push_back("\"links\": " + json_list(links));
  out.push_back("\"devices\": " + json_list(lines));
  return out;
}

Cluster take_cluster(JsonObject& o) {
  const JsonDocument& d = o.document;
  Cluster out;
  if (const JsonValue* v = o.find("cores")) out.cores = static_cast<int>(d.integer(*v, 1, 65536));
  if (const JsonValue* v = o.find("unlinked"))
    for (const JsonValue& e : d.array(*v)) {
      if (d.array(e).size() != 2) d.fail(e, "is a pair of memory spaces");
      out.unlinked.emplace_back(d.text(e.items[0]), d.text(e.items[1]));
    }
  if (const JsonValue* v = o.find("peers"))
    for (const JsonValue& e : d.array(*v)) {
      const auto& group = out.peers.emplace_back(placed(d, e, [&] { return parse_devices(d.text(e)); }));
      if (std::any_of(group.begin(), group.end(), [](const DeviceId& id) { return id.kind != "gpu" || id.slice >= 0; })) d.fail(e, "is no group of whole GPUs that read each other's memory, and no GPU that reads none");
    }
  if (const JsonValue* v = o.find("host_memory"))
    for (const JsonValue& e : d.array(*v)) out.host_memory.push_back(d.integer(e, 0, kMostBytes));
  std::set<DeviceId> known;
  std::set<std::string> spaces;
  std::map<std::string, std::string> lies_in;  // devices in a space of another name
  const JsonValue& devices = o.at("devices");
  for (const JsonValue& e : d.array(devices)) {
    JsonObject line(d, e);
    ClusterDevice device;
    const JsonValue& ids = line.at("devices");
    const std::vector<DeviceId> named = devices_on_hosts(line);
    const JsonValue* space = line.find("space");
    if (const JsonValue* v = line.find("streams")) device.streams = static_cast<int>(d.integer(*v, 1, 65536));
    if (const JsonValue* v = line.find("memory")) device.memory = d.integer(*v, 0, kMostBytes);
    for (auto [name, field, most] : {std::tuple{"flops", &device.flops, 1e24}, {"flops_tf32", &device.flops_tf32, 1e24}, {"flops_half", &device.flops_half, 1e24}, {"bandwidth", &device.bandwidth, 1e18}})
      if (const JsonValue* v = line.find(name)) {
        *field = cost_of(d, *v, most);
        if (*field != 0 && *field < 1) d.fail(*v, "is no rate: a second, at least 1, or 0 where nothing is known");
      }
    if (const JsonValue* v = line.find("launch")) device.launch = cost_of(d, *v, 1);
    if (const JsonValue* v = line.find("overlap")) device.overlap = cost_of(d, *v, 1);
    if (const JsonValue* v = line.find("efficiency")) {
      device.efficiency = cost_of(d, *v, 1);
      if (device.efficiency < 1e-6) d.fail(*v, "is the share of flops and bandwidth that kernels reach, above 0");
    }
    line.done();
    for (const DeviceId& id : named) {
      if (const std::string why = clash(known, id); !why.empty()) d.fail(ids, why);
      known.insert(id);
      if (static_cast<std::int64_t>(known.size()) > kMostDevices) d.fail(ids, fmt::format("there are more than {} devices", kMostDevices));
      device.id = id;
      device.space = space ? d.text(*space) : to_string(id);
      spaces.insert(device.space);
      if (space) lies_in.emplace(to_string(id), device.space);
      out.devices.push_back(device);
    }
  }
  if (const JsonValue* v = o.find("links"))
    for (const JsonValue& e : d.array(*v)) {
      ClusterLink& link = out.links.emplace_back(link_of(d, e));
      if (const auto at = lies_in.find(place_at(link.to, cpu(0))); at != lies_in.end() && link.to.find('*') == link.to.npos) link.to = at->second;
      for (const DeviceId& id : link.devices)
        if (!known.contains(id)) d.fail(e, fmt::format("the link's device {} is not among the devices", to_string(id)));
      if (link.to.find('*') == link.to.npos && !spaces.contains(place_at(link.to, cpu(0))) && reads_as_devices(link.to))
        d.fail(e, fmt::format("'{}' is no one device of this cluster, at which a link could end; name one, its memory space, or a switch by a word of its own", link.to));
    }
  for (const auto& [a, b] : out.unlinked)
    for (const std::string& s : {a, b})
      if (!spaces.contains(s)) d.fail(*o.find("unlinked"), fmt::format("no device has the memory space '{}'{}", s, did_you_mean(s, {spaces.begin(), spaces.end()})));
  placed(d, devices, [&] { return out.host(); });
  return out;
}

void refuse_idle_links(const JsonDocument& d, const JsonValue& links, const Cluster& cluster) {
  std::set<std::string> spaces;
  for (const ClusterDevice& device : cluster.devices) spaces.insert(device.space);
  std::map<std::string, std::set<DeviceId>> joined;  // by a switch
  for (const ClusterLink& l : cluster.links)
    for (const DeviceId& id : l.devices)
      if (std::string to = place_at(l.to, id); !spaces.contains(to)) joined[std::move(to)].insert(id);
  for (std::size_t k = 0; k < cluster.links.size(); ++k) {
    const bool of_hosts = JsonObject(d, links.items[k]).find("hosts");  // of which there may be one
    for (const DeviceId& id : cluster.links[k].devices) {
      const std::string to = place_at(cluster.links[k].to, id);
      if (to == cluster.space(cluster.at(id))) d.fail(links.items[k], fmt::format("is a link from {} to itself, '{}': leave it out of \"devices\", or name another end", to_string(id), to));
      if (!of_hosts && joined.contains(to) && joined[to].size() < 2) d.fail(links.items[k], fmt::format("'{}' joins {} alone: a switch joins several; a device is written cpu:0", to, to_string(id)));
    }
  }
}

Cluster cluster_of(const JsonDocument& d, const JsonValue& v) {
  JsonObject o(d, v);
  Cluster out = take_cluster(o);
  o.done();
  return out;
}

}  // namespace belfry
