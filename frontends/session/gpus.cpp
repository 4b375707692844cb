#include <belfry/frontends/session/gpus.h>

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <belfry/executor/device/cuda/backend.h>
#include <belfry/frontends/session/stand_ins.h>
#include <belfry/graph/error.h>

namespace belfry {
namespace {

/// What keeps a GPU from being used; `what` is empty if nothing is known to.
Missing what_stops(const DeviceId& device, const CudaFacts& facts) {
  const auto gpu = std::find_if(facts.gpus.begin(), facts.gpus.end(), [&](const GpuFacts& g) { return g.index == device.index; });
  if (gpu != facts.gpus.end()) return gpu->stops;
  if (const Missing* own = facts.find_missing(to_string(device.whole()))) return *own;
  if (facts.gpus.empty() && !facts.missing.empty()) return facts.missing.front();
  std::vector<DeviceId> known;
  for (const GpuFacts& g : facts.gpus) known.push_back({0, "gpu", g.index, -1});
  return {to_string(device), known.empty() ? "there is no GPU" : fmt::format("the GPUs here are {}", to_string(known)), known.empty() ? "look with nvidia-smi" : "name one of these"};
}

/// "device gpu:0 cannot be used: …; what to do. …", with the devices that stand in for these, and how they are named: beside a plan of the user's, or where the others were.
std::string no_gpu_text(const DeviceId& device, const Missing& stops, const std::vector<DeviceId>& devices, bool of_plan) {
  std::vector<DeviceId> own = devices;
  std::erase_if(own, [](const DeviceId& d) { return d.kind == "cpu"; });
  const std::string sims = sims_for(own.size()), cpus = "cpu" + sims.substr(sims.find(':'));
  const std::string how = of_plan ? fmt::format("belfry place PLAN --devices {0} -o NEW makes a plan for them of this one, and run, train, evaluate and predict take --devices {0} beside it", sims) : fmt::format("name them where {} is named, or give --devices {} beside a placement file", to_string(own), sims);
  const std::string why = stops.what.starts_with("gpu:") ? fmt::format("{}; {}", stops.why, stops.way_out) : to_string(stops);
  return fmt::format("device {} cannot be used: {}. {} can stand in for {} with the CPU's numbers, as can {}: {} (belfry devices says more)", to_string(device), why, sims, to_string(own), cpus, how);
}

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

std::shared_ptr<const Library> with_gpu_kernels(std::shared_ptr<const Library> library, const std::vector<DeviceId>& devices, const PlacedGraph* plan) {
  const DeviceId* gpu = first_gpu(devices);
  if (library->kernels.contains("gpu") || !gpu) return library;
  const OpenedCudaBackend backend = open_cuda_backend();
  if (!backend.table) throw UserError(no_gpu_text(*gpu, backend.missing, plan ? replaceable_devices(*plan) : devices, plan));
  return with_kernels_of(*backend.table, *library);
}

std::shared_ptr<const Library> with_known_gpu_kernels(std::shared_ptr<const Library> library) {
  if (library->kernels.contains("gpu")) return library;
  const OpenedCudaBackend backend = open_cuda_backend();
  return backend.table ? with_kernels_of(*backend.table, *library) : library;
}

std::shared_ptr<const Library> with_gpu_kernels(std::shared_ptr<const Library> library, const Cluster& cluster, const std::vector<DeviceId>& asked, const PlacedGraph* plan) {
  const std::vector<DeviceId> all = cluster.ids();
  std::vector<DeviceId> wanted = all;
  std::erase_if(wanted, [&](const DeviceId& d) { return std::find(asked.begin(), asked.end(), d) == asked.end(); });
  library = with_gpu_kernels(std::move(library), wanted, plan);
  return first_gpu(all) ? with_known_gpu_kernels(std::move(library)) : library;
}

std::string why_no_gpu_kernels() {
  const OpenedCudaBackend backend = open_cuda_backend();
  return backend.table ? "" : to_string(backend.missing);
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

namespace {

/// As the backend opens it. `facts`: asking takes a look at driver and libraries: once, and not where nothing is to be opened.
std::shared_ptr<Device> open_gpu(const DeviceId& id, std::optional<CudaFacts>& facts) {
  if (!facts) facts = cuda_facts();
  const OpenedCudaBackend backend = open_cuda_backend();
  const Missing stops = what_stops(id, *facts);
  if (!backend.table || !stops.what.empty()) throw MissingError(stops);
  return backend.table->open(id);
}

}  // namespace

Devices open_gpus(const PlacedGraph& plan, const Library& library, const Devices& open) {
  Devices out;
  std::optional<CudaFacts> facts;
  for (const DeviceId& id : used_devices(plan))
    if (id.kind == "gpu" && !open.contains(to_string(id))) out[to_string(id)] = library.open_gpu ? library.open_gpu(id) : open_gpu(id, facts);
  return out;
}

std::vector<Missing> what_stops(const PlacedGraph& plan) {
  constexpr std::pair<const char*, const char*> kCalled[] = {{"cublas_lt_", "cuBLASLt"}, {"cudnn_", "cuDNN"}, {"nvrtc_", "NVRTC"}, {"nccl", "NCCL"}};
  std::vector<Missing> out;
  const std::vector<DeviceId> used = used_devices(plan);
  if (!first_gpu(used)) return out;
  const CudaFacts facts = cuda_facts();
  bool here = false;
  for (const GpuFacts& g : facts.gpus) {
    if (std::none_of(used.begin(), used.end(), [&](const DeviceId& d) { return d.kind == "gpu" && d.index == g.index; })) continue;
    here = true;
    if (!g.stops.what.empty()) out.push_back(g.stops);
  }
  if (!here) return out;
  for (const auto& [prefix, name] : kCalled) {
    const Missing* m = facts.find_missing(name);
    auto calls = [&](const Variant& v) { return v.kernel.starts_with(prefix); };
    if (m && std::any_of(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& n) { return std::any_of(n.by_class.begin(), n.by_class.end(), calls) || std::any_of(n.by_group.begin(), n.by_group.end(), calls); })) out.push_back(*m);
  }
  return out;
}

void with_words_of_absence(const PlacedGraph& plan, bool given, const std::function<void()>& make_ready) {
  try {
    make_ready();
  } catch (const MissingError& e) {
    const std::vector<DeviceId> own = replaceable_devices(plan);
    const DeviceId* first = first_gpu(own);
    if (!first) throw;
    throw UserError(no_gpu_text(e.missing.what.starts_with("gpu:") ? parse_device(e.missing.what) : *first, e.missing, own, given));
  }
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
