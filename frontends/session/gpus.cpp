#include <belfry/frontends/session/gpus.h>

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/executor/device/cuda/backend.h>
#include <belfry/graph/error.h>

namespace belfry {
namespace {

std::string why_not(const CudaFacts& facts) {
  if (facts.gpus.empty()) {
    if (facts.missing.empty()) return "there is no GPU";
    const Missing& m = facts.missing.front();
    return fmt::format("{}: {}; {}", m.what, m.why, m.way_out);
  }
  std::vector<DeviceId> known;
  for (const GpuFacts& g : facts.gpus) known.push_back({0, "gpu", g.index, -1});
  return fmt::format("the GPUs here are {}", to_string(known));
}

}  // namespace

std::string no_gpu_text(const DeviceId& device, const CudaFacts& facts, int cores) {
  std::string cpus = cores == 1 ? "cpu:0" : fmt::format("cpu:0-{}", cores - 1);
  return fmt::format("device {} cannot be used: {}. Here are {}, and sim:{}, which stands in for it with the CPU's numbers (belfry devices says more)",
                     to_string(device), why_not(facts), cpus, device.index);
}

namespace {

std::shared_ptr<const Library> with_kernels_of(const CudaBackend& backend, const Library& library) {
  auto out = std::make_shared<Library>(library);
  backend.add_kernels(out->kernels["gpu"]);
  return out;
}

/// Null where there is none.
const DeviceId* first_gpu(const std::vector<DeviceId>& devices) {
  const auto at = std::find_if(devices.begin(), devices.end(), [](const DeviceId& d) { return d.kind == "gpu"; });
  return at == devices.end() ? nullptr : &*at;
}

}  // namespace

std::shared_ptr<const Library> with_gpu_kernels(std::shared_ptr<const Library> library, const std::vector<DeviceId>& devices) {
  const DeviceId* gpu = first_gpu(devices);
  if (library->kernels.contains("gpu") || !gpu) return library;
  OpenedCudaBackend backend = open_cuda_backend();
  if (!backend.table) {
    CudaFacts facts;
    facts.missing.push_back(backend.missing);
    throw UserError(no_gpu_text(*gpu, facts, host_facts().cores));
  }
  return with_kernels_of(*backend.table, *library);
}

std::shared_ptr<const Library> with_known_gpu_kernels(std::shared_ptr<const Library> library) {
  if (library->kernels.contains("gpu")) return library;
  const OpenedCudaBackend backend = open_cuda_backend();
  return backend.table ? with_kernels_of(*backend.table, *library) : library;
}

std::map<int, std::int64_t> gpu_memory(const std::vector<DeviceId>& devices, double fraction) {
  std::map<int, std::int64_t> out;
  if (!first_gpu(devices)) return out;
  for (const GpuFacts& g : cuda_facts().gpus) out[g.index] = static_cast<std::int64_t>(fraction * static_cast<double>(g.memory_bytes));
  return out;
}

std::vector<std::vector<DeviceId>> gpu_peers(const std::vector<DeviceId>& devices) {
  std::set<int> gpus;
  for (const DeviceId& d : devices)
    if (d.kind == "gpu") gpus.insert(d.index);
  std::vector<std::vector<DeviceId>> out;
  if (gpus.size() < 2) return out;
  for (const GpuLink& l : cuda_facts().links)
    if (l.peer && gpus.contains(l.from) && gpus.contains(l.to)) out.push_back({{0, "gpu", l.from, -1}, {0, "gpu", l.to, -1}});
  if (out.size() == gpus.size() * (gpus.size() - 1) / 2) {  // all of them: one group
    out.assign(1, {});
    for (int g : gpus) out[0].push_back({0, "gpu", g, -1});
  }
  return out;
}

Devices open_gpus(const PlacedGraph& plan, const Library& library, const Devices& open) {
  Devices out;
  std::optional<CudaFacts> facts;  // asking takes a look at driver and libraries: once, and not where nothing is to be opened
  for (const PlanStream& s : plan.streams) {
    const DeviceId& id = plan.cluster.devices[static_cast<std::size_t>(s.device)].id;
    if (id.kind != "gpu" || open.contains(to_string(id)) || out.contains(to_string(id))) continue;
    std::shared_ptr<Device>& device = out[to_string(id)];
    if (library.open_gpu) {
      device = library.open_gpu(id);
      continue;
    }
    if (!facts) facts = cuda_facts();
    OpenedCudaBackend backend = open_cuda_backend();
    bool there = std::any_of(facts->gpus.begin(), facts->gpus.end(), [&](const GpuFacts& g) { return g.index == id.index; });
    if (!there || !backend.table) throw UserError(no_gpu_text(id, *facts, host_facts().cores));
    device = backend.table->open(id);
  }
  return out;
}

std::unique_ptr<GpuMeter> open_meter(const Devices& open, const Library& library) {
  std::set<int> gpus;  // logical devices share one
  for (const auto& [name, device] : open) gpus.insert(parse_device(name).index);
  const std::vector<int> all(gpus.begin(), gpus.end());
  if (library.gpu_meter) return library.gpu_meter(all);
  OpenedCudaBackend backend = library.open_gpu ? OpenedCudaBackend{} : open_cuda_backend();
  return backend.table ? backend.table->meter(all) : nullptr;
}

}  // namespace belfry
