// Time and memory of placing 120 dense layers with momentum on n sim devices, a child process per case: placement [LAYERS]
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include "plans.h"

using namespace belfry;
using namespace belfry::test;

namespace {

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

double seconds_since(std::chrono::steady_clock::time_point start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

void measure(int layers, const std::string& kind, int n) {
  auto graph = std::make_shared<const Graph>(deep(layers));
  Strategy s = kind == "towers" ? to_strategy(Towers{.devices = sims(n), .towers = n, .threads = 1}) : to_strategy(Mirrored{.devices = sims(n), .towers = n, .threads = 1});
  Cluster cluster = sim_cluster(n);
  std::int64_t before = resident_kib();
  auto start = std::chrono::steady_clock::now();
  PlacedGraph plan = place(graph, s, cluster, 2048);
  double spent = seconds_since(start);
  std::int64_t kept = resident_kib() - before;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("{:9} {:5} devices: {} nodes, {} classes, {} groups, {} vectors, place {:.3f} s, plan {} KiB, peak over graph {} KiB\n", kind, n, plan.nodes.size(), plan.classes.size(), plan.groups.size(), plan.vectors.size(),
             spent, kept, usage.ru_maxrss - before);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int layers = argc > 1 ? std::atoi(argv[1]) : 120;
  for (const char* kind : {"towers", "mirrored"})
    for (int n : {2, 64, 1024}) {
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
