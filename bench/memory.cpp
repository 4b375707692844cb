// Planned bytes of every device beside the live maximum, for every net and strategy; state apart.
#include <fmt/format.h>

#include "plans.h"

using namespace belfry;
using namespace belfry::test;

int main() {
  std::map<std::string, std::vector<double>> ratios;
  for (const Net& n : nets()) {
    if (n.name == "two_heads") continue;
    auto graph = std::make_shared<const Graph>(training_graph(n));
    for (const NamedStrategy& s : strategies(4, 2)) {
      Cluster cluster = sim_cluster(2);
      PlacedGraph plan = place(graph, s.strategy, cluster, 64, {.fetches = fetches_of(*graph)});
      std::vector<std::int64_t> lives = live_maxima(BoundPlan(plan));
      std::vector<DeviceBytes> all_bytes = device_bytes(plan);
      for (int d = 0; d < static_cast<int>(cluster.devices.size()); ++d) {
        DeviceBytes b = all_bytes[static_cast<std::size_t>(d)];
        std::int64_t planned = b.region + b.kept + b.transient, live = lives[static_cast<std::size_t>(d)];
        if (!planned) continue;
        double ratio = static_cast<double>(planned) / static_cast<double>(std::max<std::int64_t>(live, 1));
        ratios[s.name].push_back(ratio);
        fmt::print("{:16} {:30} {:6} state {:8} region {:8} kept {:8} transient {:8}  planned {:8} live {:8}  {:.2f}x\n", n.name, s.name, to_string(cluster.devices[static_cast<std::size_t>(d)].id), b.state, b.region,
                   b.kept, b.transient, planned, live, ratio);
      }
    }
  }
  for (auto& [name, all] : ratios) {
    std::sort(all.begin(), all.end());
    fmt::print("{:30} planned / live: median {:.2f}, most {:.2f}\n", name, all[all.size() / 2], all.back());
  }
}
