// Planned bytes of every device beside the live maximum, and beside what no fixed places can do without, for every net and strategy;
// state apart. memory [PART OF A NET'S NAME [OF A STRATEGY'S]]
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/session.h>
#include <belfry/graph/plan/verify.h>

#include "fixed_places.h"
#include "plans.h"

using namespace belfry;
using namespace belfry::test;

namespace {

struct Case {
  std::string name;
  Strategy strategy;
  Cluster cluster;
  double goal = 0;  ///< of planned / live
  std::int64_t batch = 16;
};

std::vector<Case> cases() {
  auto one = sims(1), two = sims(2), four = sims(4);
  std::vector<Case> out;
  out.push_back({"single", to_strategy(Single{.device = one[0], .threads = 1}), sim_cluster(1), 1.02});
  out.push_back({"towers", to_strategy(Towers{.devices = two, .variables = cpu(0), .towers = 2, .threads = 1}), sim_cluster(2), 1.02});
  out.push_back({"towers, variables on the last", to_strategy(Towers{.devices = two, .variables = two[1], .towers = 2, .threads = 1}), sim_cluster(2), 1.02});
  out.push_back({"mirrored", to_strategy(Mirrored{.devices = two, .towers = 2, .threads = 1}), sim_cluster(2), 1.02});
  out.push_back({"layers", to_strategy(Layers{.devices = two, .order = PhaseOrder::by_tower, .threads = 1}), sim_cluster(2), 1.02});
  out.push_back({"two side by side", to_strategy(Single{.device = one[0], .towers = 2, .threads = 1}), sim_cluster(1, true, 2), 1.15});
  out.push_back({"mirrored, two side by side", to_strategy(Mirrored{.devices = two, .towers = 4, .threads = 1}), sim_cluster(2, true, 2), 1.15});
  out.push_back({"gpipe 2 x 4", to_strategy(Layers{.devices = two, .towers = 4, .order = PhaseOrder::gpipe, .threads = 1}), sim_cluster(2), 1.25});
  out.push_back({"gpipe 4 x 8", to_strategy(Layers{.devices = four, .towers = 8, .order = PhaseOrder::gpipe, .threads = 1}), sim_cluster(4), 1.25});
  out.push_back({"1f1b 2 x 4", to_strategy(Layers{.devices = two, .towers = 4, .order = PhaseOrder::one_f_one_b, .threads = 1}), sim_cluster(2), 1.25});
  out.push_back({"1f1b 4 x 8", to_strategy(Layers{.devices = four, .towers = 8, .order = PhaseOrder::one_f_one_b, .threads = 1}), sim_cluster(4), 1.25});
  for (auto [name, order] : {std::pair{"gpipe 3 x 31 of 32 rows", PhaseOrder::gpipe}, {"1f1b 3 x 31 of 32 rows", PhaseOrder::one_f_one_b}})
    out.push_back({name, to_strategy(Layers{.devices = sims(3), .towers = 31, .order = order, .threads = 1}), sim_cluster(3), 1.25, 32});
  for (auto [name, order] : {std::pair{"gpipe 3 x 31 of 45 rows", PhaseOrder::gpipe}, {"1f1b 3 x 31 of 45 rows", PhaseOrder::one_f_one_b}})
    out.push_back({name, to_strategy(Layers{.devices = sims(3), .towers = 31, .order = order, .threads = 1}), sim_cluster(3), 1.25, 45});
  out.push_back({"sharded", to_strategy(Sharded{.devices = two, .towers = 2, .threads = 1}), sim_cluster(2), 1.02});
  out.push_back({"sharded on four", to_strategy(Sharded{.devices = four, .towers = 4, .threads = 1}), sim_cluster(4), 1.02});
  out.push_back({"layers on four", to_strategy(Layers{.devices = four, .order = PhaseOrder::by_tower, .threads = 1}), sim_cluster(4), 1.02});
  out.push_back({"mirrored on four", to_strategy(Mirrored{.devices = four, .towers = 4, .threads = 1}), sim_cluster(4), 1.02});
  out.push_back({"four in turn", to_strategy(Single{.device = one[0], .towers = 4, .threads = 1}), sim_cluster(1)});
  for (int towers : {2, 4})
    out.push_back({fmt::format("{} in turn, variables on the host", towers), to_strategy(Towers{.devices = one, .variables = cpu(0), .towers = towers, .threads = 1}), sim_cluster(1)});
  for (auto [name, towers] : {std::pair{"two side by side, variables on the host", 4}, {"three on two streams, variables on the host", 6}})
    out.push_back({name, to_strategy(Towers{.devices = two, .variables = cpu(0), .towers = towers, .threads = 1}), sim_cluster(2, true, 2)});
  out.push_back({"1f1b 4 x 8, computed again", recomputing(to_strategy(Layers{.devices = four, .towers = 8, .order = PhaseOrder::one_f_one_b, .threads = 1}), 3), sim_cluster(4)});
  for (int devices : {2, 4})
    out.push_back({fmt::format("interleaved {} x {}", devices, 2 * devices), to_strategy(Layers{.devices = sims(devices), .towers = 2 * devices, .order = PhaseOrder::interleaved, .chunks = 2, .threads = 1}), sim_cluster(devices)});
  return out;
}

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::vector<double>> ratios, of_fixed;
  std::map<std::string, double> goals;
  auto library = standard_library();
  for (const NetDef& n : standard_nets()) {
    if (argc > 1 && n.name.find(argv[1]) == std::string::npos) continue;
    const Graph graph = n.build(library->ops, {});
    for (const Case& c : cases()) {
      if (argc > 2 && c.name.find(argv[2]) == std::string::npos) continue;
      auto start = std::chrono::steady_clock::now();
      Session session(graph, c.strategy, {.library = library, .cluster = c.cluster});
      const PlacedGraph& plan = session.plan(c.batch);
      const double ms = 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const BoundPlan bound(plan);
      std::vector<std::int64_t> lives = live_maxima(bound, 4'000'000), fixed = FixedPlaces(bound).least_bytes();
      for (std::size_t d = 0; d < fixed.size(); ++d) fixed[d] = std::max(fixed[d], lives[d]);
      for (const DeviceGroup& g : plan.groups)  // which share their offsets
        for (std::vector<std::int64_t>* bytes : {&lives, &fixed}) {
          std::int64_t most = 0;
          for (int d : g.devices) most = std::max(most, (*bytes)[static_cast<std::size_t>(d)]);
          for (int d : g.devices) (*bytes)[static_cast<std::size_t>(d)] = most;
        }
      std::vector<DeviceBytes> all = device_bytes(plan);
      goals[c.name] = c.goal;
      for (std::size_t d = 0; d < all.size(); ++d) {
        const DeviceBytes& b = all[d];
        const std::int64_t planned = b.total() - b.state;
        if (!planned) continue;
        auto over = [&](const std::vector<std::int64_t>& bytes) { return static_cast<double>(planned) / static_cast<double>(std::max<std::int64_t>(bytes[d], 1)); };
        if (plan.cluster.devices[d].id.kind == "sim") ratios[c.name].push_back(over(lives)), of_fixed[c.name].push_back(over(fixed));
        fmt::print("{:20} {:30} {:6} state {:7.2f} region {:7.2f} kept {:7.2f} transient {:7.2f}  planned {:8.2f} live {:8.2f} MiB {:.3f}x, fixed {:.3f}x  {:.0f} ms\n", n.name, c.name, to_string(plan.cluster.devices[d].id),
                   mib(b.state), mib(b.region), mib(b.kept), mib(b.transient), mib(planned), mib(lives[d]), over(lives), over(fixed), ms);
      }
      std::fflush(stdout);
    }
  }
  for (auto& [name, r] : ratios) {
    std::sort(r.begin(), r.end());
    const std::vector<double>& f = of_fixed[name];
    fmt::print("{:30} planned / live: median {:.3f}, most {:.3f}{}; of fixed places: most {:.3f}\n", name, r[r.size() / 2], r.back(), goals[name] > 0 ? fmt::format(", wanted {:.2f}", goals[name]) : "", *std::max_element(f.begin(), f.end()));
  }
}
