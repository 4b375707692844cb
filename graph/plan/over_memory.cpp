#include <belfry/graph/plan/over_memory.h>

#include <fmt/format.h>

#include <belfry/graph/plan/memory.h>

namespace belfry {

std::string in_gib(std::int64_t bytes) { return bytes < (std::int64_t{1} << 30) ? "" : fmt::format(" ({:.2f} GiB)", static_cast<double>(bytes) / (1 << 30)); }

std::vector<std::string> over_memory(const PlacedGraph& plan) {
  struct Host {
    std::int64_t bytes = 0;
    std::string parts;
  };
  std::vector<std::string> out;
  std::vector<DeviceBytes> needed = device_bytes(plan);
  std::vector<Host> hosts(plan.cluster.host_memory.size());
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) {
    const ClusterDevice& device = plan.cluster.devices[d];
    std::int64_t bytes = needed[d].total();
    if (bytes > device.memory) out.push_back(fmt::format("{} needs {} bytes{}, but has {}{}", to_string(device.id), bytes, in_gib(bytes), device.memory, in_gib(device.memory)));
    auto h = static_cast<std::size_t>(device.id.host);
    if (!bytes || h >= hosts.size() || (device.id.kind != "cpu" && device.id.kind != "sim")) continue;
    hosts[h].parts += fmt::format("{}{} of {}", hosts[h].parts.empty() ? "" : ", ", bytes, to_string(device.id));
    hosts[h].bytes += bytes;
  }
  for (std::size_t h = 0; h < hosts.size(); ++h)
    if (hosts[h].bytes > plan.cluster.host_memory[h]) out.push_back(fmt::format("host {} has {} bytes{} of memory for all its cpu and sim devices, which need {}{}: {}", h, plan.cluster.host_memory[h], in_gib(plan.cluster.host_memory[h]), hosts[h].bytes, in_gib(hosts[h].bytes),
                                                                                      hosts[h].parts));
  return out;
}

}  // namespace belfry
