// Time of the executor itself: kernels that do nothing, in rounds that take the cases in turn. executor [OPS]
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>

#include <belfry/frontends/session/kernel_chooser.h>

#include "plans.h"

using namespace belfry;
using namespace belfry::test;

namespace {

KernelTables empty_kernels() {
  KernelTable table;
  table.add({"nothing", "neg", [](const KernelRequest&) { return Support{}; }, [](const KernelRequest&) { return prepared([](const Arguments&) {}); }});
  return {{"cpu", std::move(table)}};
}

/// A chain of `ops` nodes of one tower; node i on device (i / run) mod devices.
struct Case {
  std::string name;
  int ops, devices, run, cores;
  double per;  ///< of what a round's time is printed
};

class Chain {
 public:
  explicit Chain(const Case& c) : kernels_(empty_kernels()), program_(plan_of(c, kernels_), kernels_), runner_(program_), x_(f32, {1}), feeds_{{"x", &x_}} {}

  double nanoseconds(int repeats) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) (void)runner_.run(feeds_);
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / repeats;
  }

 private:
  static std::shared_ptr<const PlacedGraph> plan_of(const Case& c, const KernelTables& kernels) {
    Builder b("chain");
    Value x = b.input("x", f32, {kBatch});
    std::vector<DeviceId> devices;
    for (int d = 0; d < c.devices; ++d) devices.push_back(cpu(d));
    Placement p{.towers = 1, .batch = 1, .threads = 1, .rules = {}};
    for (int i = 0; i < c.ops; ++i) {
      x = neg(x);
      p.rules.push_back({x.name(), {devices[static_cast<std::size_t>(i / c.run % c.devices)]}, "bench"});
    }
    p.rules.push_back({"**", {cpu(0)}, "bench"});
    auto graph = std::make_shared<const Graph>(std::move(b).build());
    return std::make_shared<const PlacedGraph>(place(graph, p, local_cluster(devices, c.cores), {.fetches = {{"y", x.id}}, .kernels = chooser(kernels)}));
  }

  KernelTables kernels_;
  Program program_;
  Runner runner_;
  HostTensor x_;
  Feeds feeds_;
};

}  // namespace

int main(int argc, char** argv) {
  int ops = argc > 1 ? std::atoi(argv[1]) : 10000;
  const std::vector<Case> cases = {{"one op, start to end of a step", 1, 1, 1, 1, 1},
                                   {"per op, one stream", ops, 1, 1, 1, static_cast<double>(ops)},
                                   {"per op, two streams of one thread in turn", ops, 2, 1, 1, static_cast<double>(ops)},
                                   {"per wait across two threads in turn", 1000, 2, 1, 2, 1000}};
  std::vector<std::unique_ptr<Chain>> chains;
  std::vector<std::vector<double>> found(cases.size());
  for (const Case& c : cases) chains.push_back(std::make_unique<Chain>(c));
  for (int round = 0; round < 31; ++round)
    for (std::size_t i = 0; i < cases.size(); ++i) found[i].push_back(chains[i]->nanoseconds(cases[i].ops == 1 ? 1000 : 10) / cases[i].per);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::sort(found[i].begin(), found[i].end());
    fmt::print("{:45} median {:8.1f} ns, from {:.1f} to {:.1f} (tenths {:.1f} and {:.1f}) of 31 rounds\n", cases[i].name, found[i][15], found[i].front(), found[i].back(), found[i][3], found[i][27]);
  }
}
