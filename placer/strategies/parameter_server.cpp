#include <algorithm>

#include <fmt/format.h>

#include <belfry/placer/strategies/spread_internal.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

Division ParameterServer::divide(const Graph&, const Cluster&) const {
  return one_per_device(devices, towers, combine, threads);
}

Rules ParameterServer::assign(const TowerGraph& tg, const Cluster&) const { return spread_over(servers, tg, {{"tower_*/**", devices, "a worker per device"}}); }

Strategy to_strategy(const ParameterServer& s) {
  if (s.devices.empty() || s.servers.empty()) throw UserError("[parameter_server] there must be a worker's device and a server's");
  std::vector<DeviceId> all = s.devices;
  for (const DeviceId& d : s.servers)
    if (std::find(all.begin(), all.end(), d) == all.end()) all.push_back(d);
  Strategy out = strategy("parameter_server", all, s);
  if (!s.staleness && !s.backup) return out;
  const int workers = s.towers ? s.towers : static_cast<int>(s.devices.size());
  if (workers < 1 || workers > kMostTowers) throw UserError(fmt::format("[parameter_server] {} workers: there are 1 to {}", workers, kMostTowers));
  if (s.staleness && s.backup)
    throw UserError(fmt::format("[parameter_server] -O staleness={} -O backup={}: staleness is of asynchronous workers, backup of synchronous ones; take one of the two",
                                *s.staleness, s.backup));
  if (s.staleness.value_or(0) < 0) throw UserError(fmt::format("[parameter_server] a staleness of {}; 0 is the least", *s.staleness));
  if (s.backup < 0 || s.backup >= workers)
    throw UserError(fmt::format(
        "[parameter_server] -O backup={0}: {0} of {1} workers cannot be backup workers: at least one gradient makes an update; {2}take more workers (--devices, --towers)",
        s.backup, workers, workers > 1 ? fmt::format("give -O backup={} or less, or ", workers - 1) : "leave backup out, or "));
  Loops loops{{}, s.servers, s.staleness.value_or(0), s.backup, s.combine, s.threads};
  for (int w = 0; w < workers; ++w) loops.workers.push_back(s.devices[static_cast<std::size_t>(w) * s.devices.size() / static_cast<std::size_t>(workers)]);
  out.loops = std::move(loops);
  return out;
}

}  // namespace belfry
