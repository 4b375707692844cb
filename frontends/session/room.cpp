#include <belfry/frontends/session/room_internal.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/graph/error.h>
#include <belfry/graph/plan/memory.h>

namespace belfry {

void check_room_here(const PlacedGraph& plan) {
  std::int64_t bytes = 0, memory = host_facts().memory_bytes;
  std::vector<DeviceBytes> each = device_bytes(plan);
  for (std::size_t d = 0; d < each.size(); ++d)
    if (plan.cluster.devices[d].id.kind != "gpu") bytes += each[d].total();
  if (memory && bytes > memory) throw UserError(fmt::format("the plan needs {} bytes, but this host has {}: the cluster that it is made for says more; give it this host's memory, and what would fit is named",
                                                           bytes, memory));
}

bool fits_beside(const std::vector<const PlacedGraph*>& ready, const PlacedGraph& next) {
  struct Held {
    std::int64_t state = 0, values = 0, memory = 0;
    std::int64_t total() const { return state + values; }
  };
  std::map<DeviceId, Held> devices;
  auto add = [&](const PlacedGraph& plan) {
    const std::vector<DeviceBytes> bytes = device_bytes(plan);
    for (std::size_t d = 0; d < bytes.size(); ++d) {
      Held& held = devices[plan.cluster.devices[d].id];
      held.state = std::max(held.state, bytes[d].state);
      held.values += bytes[d].total() - bytes[d].state;
      held.memory = plan.cluster.devices[d].memory;
    }
  };
  for (const PlacedGraph* plan : ready) add(*plan);
  add(next);
  std::map<int, std::int64_t> hosts;
  std::int64_t here = 0;
  for (const auto& [id, held] : devices) {
    if (held.total() > held.memory) return false;
    if (id.kind != "gpu") hosts[id.host] += held.total(), here += held.total();
  }
  for (std::size_t h = 0; h < next.cluster.host_memory.size(); ++h)
    if (hosts[static_cast<int>(h)] > next.cluster.host_memory[h]) return false;
  return !host_facts().memory_bytes || here <= host_facts().memory_bytes;
}

}  // namespace belfry
