#include <belfry/frontends/session/no_gpu.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/executor/device/cuda/backend.h>
#include <belfry/graph/error.h>

namespace belfry {
namespace {

std::string why_not(const DeviceId& device, const CudaFacts& facts) {
  if (facts.gpus.empty()) {
    if (facts.missing.empty()) return "there is no GPU";
    const Missing& m = facts.missing.front();
    return fmt::format("{}: {}; {}", m.what, m.why, m.way_out);
  }
  auto there = std::any_of(facts.gpus.begin(), facts.gpus.end(), [&](const GpuFacts& g) { return g.index == device.index; });
  if (there) return "the GPU backend has no kernels, so that nothing runs on it";
  std::vector<DeviceId> known;
  for (const GpuFacts& g : facts.gpus) known.push_back({0, "gpu", g.index, -1});
  return fmt::format("the GPUs here are {}", to_string(known));
}

}  // namespace

std::string no_gpu_text(const DeviceId& device, const CudaFacts& facts, int cores) {
  std::string cpus = cores == 1 ? "cpu:0" : fmt::format("cpu:0-{}", cores - 1);
  return fmt::format("device {} cannot be used: {}. Here are {}, and sim:{}, which stands in for it with the CPU's numbers (belfry devices says more)",
                     to_string(device), why_not(device, facts), cpus, device.index);
}

void refuse_gpus(const std::vector<DeviceId>& devices) {
  for (const DeviceId& d : devices)
    if (d.kind == "gpu") throw UserError(no_gpu_text(d, cuda_facts(), host_facts().cores));
}

void refuse_gpus(const PlacedGraph& plan, const KernelTables& kernels) {
  if (kernels.contains("gpu")) return;
  std::vector<DeviceId> used;
  for (const PlanStream& s : plan.streams) used.push_back(plan.cluster.devices[static_cast<std::size_t>(s.device)].id);
  refuse_gpus(used);
}

}  // namespace belfry
