#include <belfry/graph/plan/cluster.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

const std::vector<int>& DeviceList::get() const {
  static const std::vector<int> none;
  return list_ ? *list_ : none;
}

bool ClusterDevice::runs_as(const ClusterDevice& o) const {
  return id.kind == o.id.kind && flops == o.flops && flops_tf32 == o.flops_tf32 && flops_half == o.flops_half && bandwidth == o.bandwidth && launch == o.launch && efficiency == o.efficiency;
}

void Cluster::check() const {
  std::set<DeviceId> there;
  std::map<std::string_view, DeviceId> lies_in;  // the first device of a memory space
  for (const ClusterDevice& d : devices) {
    if (const std::string why = clash(there, d.id); !why.empty()) throw UserError("the devices to place on: " + why);
    there.insert(d.id);
    const DeviceId& first = lies_in.try_emplace(d.space, d.id).first->second;
    if (first != d.id && (first.kind == "gpu" || d.id.kind == "gpu"))
      throw UserError(fmt::format("the devices to place on: {} and {} are said to share the memory space '{}'; a GPU has one of its own: leave its \"space\" out", to_string(first), to_string(d.id), d.space));
  }
}

int Cluster::find(const DeviceId& id) const {
  // Most clusters have one kind of device from 0 on, as many on each host.
  std::size_t each = 0;
  while (id.host > 0 && each < devices.size() && devices[each].id.host == 0 && devices[each].id.kind == id.kind) ++each;
  if (const auto guess = static_cast<std::size_t>(id.host) * each + static_cast<std::size_t>(id.index); guess < devices.size() && devices[guess].id == id) return static_cast<int>(guess);
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (devices[i].id == id) return static_cast<int>(i);
  return -1;
}

int Cluster::at(const DeviceId& id) const {
  if (int d = find(id); d >= 0) return d;
  throw UserError(fmt::format("device {} is not among the devices of this plan: {}; name it with --devices where the graph is placed: a plan keeps those that it has", to_string(id), to_string(ids())));
}

std::vector<DeviceId> Cluster::ids(const std::vector<int>& numbers) const {
  std::vector<DeviceId> out;
  for (int d : numbers) out.push_back(devices[static_cast<std::size_t>(d)].id);
  return out;
}

std::vector<DeviceId> Cluster::ids() const {
  std::vector<DeviceId> out;
  for (const ClusterDevice& d : devices) out.push_back(d.id);
  return out;
}

int Cluster::host() const {
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (devices[i].id.kind == "cpu" && devices[i].id.host == 0) return static_cast<int>(i);
  throw UserError("a cluster needs a cpu device on host 0, as {\"devices\": \"cpu:0\"} in its file: feeds and results live there");
}

bool Cluster::linked(const std::string& a, const std::string& b) const {
  return a == b || std::none_of(unlinked.begin(), unlinked.end(), [&](const auto& p) { return (p.first == a && p.second == b) || (p.first == b && p.second == a); });
}

std::vector<DeviceId> Cluster::read_by(int d) const {
  const DeviceId& id = devices[static_cast<std::size_t>(d)].id;
  if (id.kind != "gpu") return {};
  std::vector<DeviceId> out = {id.whole()};
  for (const auto& group : peers)
    if (std::find(group.begin(), group.end(), out[0]) != group.end())
      for (const DeviceId& other : group)
        if (std::find(out.begin(), out.end(), other) == out.end()) out.push_back(other);
  return out;
}

int Cluster::cpu_of(int host) const {
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (devices[i].id.kind == "cpu" && devices[i].id.host == host) return static_cast<int>(i);
  return -1;
}

int Cluster::stage(int from, int to) const {
  if (peers.empty()) return -1;
  const DeviceId &a = devices[static_cast<std::size_t>(from)].id, &b = devices[static_cast<std::size_t>(to)].id;
  if (a.kind != "gpu" || b.kind != "gpu" || a.host != b.host || a.whole() == b.whole()) return -1;
  bool knows_a = false, knows_b = false;
  for (const auto& group : peers) {
    const bool has_a = std::find(group.begin(), group.end(), a.whole()) != group.end(), has_b = std::find(group.begin(), group.end(), b.whole()) != group.end();
    if (has_a && has_b) return -1;
    knows_a |= has_a, knows_b |= has_b;
  }
  return knows_a && knows_b ? cpu_of(a.host) : -1;
}

Cluster local_cluster(const std::vector<DeviceId>& devices, int cores, std::int64_t memory, const std::map<int, std::int64_t>& gpus) {
  Cluster out;
  if (memory) out.host_memory = {memory};
  out.cores = cores;
  bool host = false;
  const auto cpus = std::count_if(devices.begin(), devices.end(), [](const DeviceId& d) { return d.kind == "cpu"; });
  for (const DeviceId& id : devices) {
    if (id.host != 0) throw UserError(fmt::format("device {}: several hosts need a cluster file", to_string(id)));
    host = host || id.kind == "cpu";
    if (id.kind == "cpu" && id.index >= std::max<std::int64_t>(cores, cpus))
      throw UserError(fmt::format("device {} is not here: {} core{} and {} CPU device{} named; number them from cpu:0 on, or take sim:0, sim:1, …, which need no cores",
                                  to_string(id), cores, cores == 1 ? "" : "s", cpus, cpus == 1 ? " is" : "s are"));
    ClusterDevice& d = out.devices.emplace_back(ClusterDevice{id, id.kind == "cpu" ? "host" : to_string(id)});
    if (id.kind != "gpu") d.memory = std::max(d.memory, memory);
    else if (auto gpu = gpus.find(id.index); gpu != gpus.end())
      d.memory = gpu->second / std::count_if(devices.begin(), devices.end(), [&](const DeviceId& o) { return o.kind == "gpu" && o.index == id.index; });  // its logical ones share it
  }
  if (!host) out.devices.push_back({cpu(0), "host", 1, std::max(ClusterDevice{}.memory, memory)});
  return out;
}

}  // namespace belfry
