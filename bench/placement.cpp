// Time and memory of placing dense layers with momentum, from 1,000 to 100,000 nodes, and how many placements of a graph of 500
// nodes are scored a second: placement [--scores]
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include <fmt/format.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/place.h>
#include <belfry/placer/scorer.h>
#include <belfry/placer/strategies/strategies.h>

using namespace belfry;

namespace {

std::vector<DeviceId> sims(int n) {
  std::vector<DeviceId> out;
  for (int i = 0; i < n; ++i) out.push_back({0, "sim", i, -1});
  return out;
}

Graph deep(int layers) {
  Builder b("deep");
  Value h = b.input("x", f32, {kBatch, 8});
  for (int i = 0; i < layers; ++i) {
    auto scope = b.scope("l" + std::to_string(i));
    h = relu(matmul(h, b.variable("w", {8, 8}, {.init = "normal"})) + b.variable("b", {8}));
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  return run_passes(training_passes(), std::move(b).build());
}

std::int64_t resident_kib() {
  std::ifstream in("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  in >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

void measure(int layers, const std::string& kind, int n) {
  auto graph = std::make_shared<const Graph>(deep(layers));
  Strategy s = kind == "towers" ? to_strategy(Towers{.devices = sims(n), .towers = n, .threads = 1}) : kind == "layers" ? to_strategy(Layers{.devices = sims(n), .threads = 1}) : to_strategy(Mirrored{.devices = sims(n), .towers = n, .threads = 1});
  Cluster cluster = local_cluster(sims(n), 2);
  std::int64_t before = resident_kib();
  double start = cpu_seconds();
  PlacedGraph plan = place(graph, s, cluster, 2048);
  double spent = cpu_seconds() - start;
  std::int64_t kept = resident_kib() - before;
  start = cpu_seconds();
  Forecast f = forecast(plan);
  double walked = cpu_seconds() - start;
  fmt::print("{:9} {:5} devices: {} nodes, {} in the plan, {} classes, {} groups, {} vectors, place {:.3f} s, plan {} KiB, forecast {:.3f} s of {} launches: {:.17g}\n", kind, n, graph->size(), plan.nodes.size(), plan.classes.size(), plan.groups.size(), plan.vectors.size(),
             spent, kept, walked, f.launches.size(), f.seconds);
  std::fflush(stdout);
}

/// Cuts at random places, or devices at random.
std::vector<PlacementRule> random_rules(const Graph& g, const std::vector<DeviceId>& devices, std::mt19937_64& rng, bool cuts) {
  std::vector<PlacementRule> out;
  std::vector<int> bounds;
  for (std::size_t i = 1; i < devices.size(); ++i) bounds.push_back(static_cast<int>(rng() % static_cast<std::size_t>(g.size())));
  std::sort(bounds.begin(), bounds.end());
  std::vector<std::size_t> at(static_cast<std::size_t>(g.size()));
  for (NodeId id = 0; id < g.size(); ++id) {
    std::size_t d = cuts ? static_cast<std::size_t>(std::upper_bound(bounds.begin(), bounds.end(), id) - bounds.begin()) : rng() % devices.size();
    if (g.node(id).of >= 0 && g.node(id).of < id) d = at[static_cast<std::size_t>(g.node(id).of)];
    at[static_cast<std::size_t>(id)] = d;
    out.push_back({g.node(id).name, {devices[d]}, "drawn"});
  }
  out.push_back({"**", {devices[0]}, "the rest"});
  return out;
}

void scores(int layers, int towers, bool cuts, int count) {
  auto graph = std::make_shared<const Graph>(deep(layers));
  Cluster cluster = local_cluster(sims(4), 4);
  std::mt19937_64 rng(1);
  std::vector<Placement> all;
  for (int i = 0; i < count; ++i) all.push_back({towers, 64, Combine::global_mean, 1, random_rules(*graph, cluster.devices.size() ? sims(4) : sims(4), rng, cuts)});
  double start = cpu_seconds(), sum = 0, spent = 0;
  std::size_t nodes = 0;
  for (const Placement& p : all) {
    PlacedGraph plan = place(graph, p, cluster);
    nodes += plan.nodes.size();
    double a = cpu_seconds();
    sum += forecast(plan).seconds;
    spent += cpu_seconds() - a;
  }
  double seconds = cpu_seconds() - start;
  Scorer scorer(graph, cluster);
  double again = 0;
  scorer(all[0]);
  const double begun = cpu_seconds();
  for (const Placement& p : all) again += scorer(p).step_seconds;
  const double scored = cpu_seconds() - begun;
  fmt::print("scorer: {:.0f} a second, {:.3f} ms {:.17g}\n", count / scored, 1e3 * scored / count, again);
  fmt::print("{} towers, {}: {} nodes, {} in the plan, {:.0f} placements a second (forecast {:.3f} ms of {:.3f} ms) {:.17g}\n", towers, cuts ? "cuts" : "random", graph->size(), nodes / all.size(), count / seconds, 1e3 * spent / count, 1e3 * seconds / count, sum);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && !std::strcmp(argv[1], "--scores")) {
    const int count = argc > 2 ? std::atoi(argv[2]) : 200;
    for (int towers : {1, 4})
      for (bool cuts : {true, false}) scores(31, towers, cuts, count);
    return 0;
  }
  for (int layers : {60, 600, 6000})
    for (const char* kind : {"towers", "mirrored", "layers"})
      for (int n : {8, 1024}) {
        if (n == 1024 && layers != 600) continue;
        if (argc > 1 && layers > std::atoi(argv[1])) continue;
        pid_t child = fork();
        if (child == 0) {
          measure(layers, kind, n);
          _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status) return 1;
      }
}
