// Plans for tests: hand-written clusters, every strategy, and runs that are compared with the tower interpreter.
#pragma once

#include <random>

#include <belfry/executor/run.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/placer/place.h>
#include <belfry/placer/strategies/strategies.h>

#include "interpreter.h"
#include "nets.h"

namespace belfry::test {

/// n sim devices and a host; with `separate` each its own memory space, else all in the host's.
inline Cluster sim_cluster(int n, bool separate = true, int streams = 1) {
  Cluster c;
  c.cores = 2;
  for (int i = 0; i < n; ++i) {
    DeviceId id{0, "sim", i, -1};
    c.devices.push_back({id, separate ? to_string(id) : "host", streams});
  }
  c.devices.push_back({cpu(0), "host", 1});
  return c;
}

inline std::vector<DeviceId> first_devices(const std::string& kind, int n) {
  std::vector<DeviceId> out;
  for (int i = 0; i < n; ++i) out.push_back({0, kind, i, -1});
  return out;
}
inline std::vector<DeviceId> sims(int n) { return first_devices("sim", n); }
inline std::vector<DeviceId> first_gpus(int n) { return first_devices("gpu", n); }

struct NamedStrategy {
  std::string name;
  Strategy strategy;
};

/// Every synchronous strategy with T towers on n sim devices.
inline std::vector<NamedStrategy> strategies(int T, int n) {
  std::vector<NamedStrategy> out;
  auto devices = sims(n);
  if (n == 1) out.push_back({"single", to_strategy(Single{.device = devices[0], .towers = T, .threads = 1})});
  out.push_back({"towers", to_strategy(Towers{.devices = devices, .variables = cpu(0), .towers = T, .threads = 1})});
  out.push_back({"towers, variables on the last", to_strategy(Towers{.devices = devices, .variables = devices.back(), .towers = T, .threads = 1})});
  out.push_back({"mirrored", to_strategy(Mirrored{.devices = devices, .towers = T, .threads = 1})});
  if (n > 1) out.push_back({"sharded", to_strategy(Sharded{.devices = devices, .towers = T, .threads = 1})});
  out.push_back({"layers", to_strategy(Layers{.devices = devices, .towers = T, .order = PhaseOrder::by_tower, .threads = 1, .cut = LayerCut::variables})});
  out.push_back({"gpipe", to_strategy(Layers{.devices = devices, .towers = T, .order = PhaseOrder::gpipe, .threads = 1, .cut = LayerCut::variables})});
  out.push_back({"1f1b", to_strategy(Layers{.devices = devices, .towers = T, .order = PhaseOrder::one_f_one_b, .threads = 1, .cut = LayerCut::variables})});
  return out;
}

inline Feeds views(const Tensors& tensors) {
  Feeds out;
  for (const auto& [name, t] : tensors) out[name] = &t;
  return out;
}

/// The CPU's kernels, fused groups among them; sim devices run the same.
inline const KernelTables& kernels() {
  static const KernelTables tables = {{"cpu", cpu_kernels()}};
  return tables;
}

inline const KernelTables& reference_kernels() {
  static const KernelTables tables = {{"cpu", KernelTable{}}};
  return tables;
}

using Chooser = std::function<int(const std::vector<int>&)>;
inline Chooser in_turn() {
  return [](const std::vector<int>& ready) { return ready[0]; };
}
inline Chooser at_random(std::uint64_t seed) {
  return [rng = std::mt19937_64(seed)](const std::vector<int>& ready) mutable { return ready[rng() % ready.size()]; };
}
/// One stream runs only when it must.
inline Chooser starving(int last) {
  return [last](const std::vector<int>& ready) { return ready[0] == last && ready.size() > 1 ? ready[1] : ready[0]; };
}

}  // namespace belfry::test
