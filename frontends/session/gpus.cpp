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
  if (device.host != 0) return {to_string(device), "it belongs to another host, and plans run on this one alone", "take a plan for the devices here"};
  const auto gpu = std::find_if(facts.gpus.begin(), facts.gpus.end(), [&](const GpuFacts& g) { return g.index == device.index; });
  if (gpu != facts.gpus.end()) return gpu->stops;
  if (const Missing* own = facts.find_missing(to_string(device.whole()))) return *own;
  if (facts.gpus.empty() && !facts.missing.empty()) return facts.missing.front();
  std::vector<DeviceId> known;
  for (const GpuFacts& g : facts.gpus) known.push_back({0, "gpu", g.index, -1});
  return {to_string(device), known.empty() ? "there is no GPU" : fmt::format("the GPUs here are {}", to_string(known)), known.empty() ? "look with nvidia-smi" : "name one of these"};
}

/// "device gpu:0 cannot be used: …; what to do. sim:0 can stand in …".
std::string no_gpu_text(const DeviceId& device, const Missing& stops, const std::string& stand_ins) {
  const std::string why = stops.what == to_string(device) || stops.what.starts_with("gpu:") ? fmt::format("{}; {}", stops.why, stops.way_out) : to_string(stops);
  return fmt::format("device {} cannot be used: {}. {} (belfry devices says more)", to_string(device), why, stand_ins);
}

/// Null where there is none.
const DeviceId* first_gpu(const std::vector<DeviceId>& devices) {
  const auto at = std::find_if(devices.begin(), devices.end(), [](const DeviceId& d) { return d.kind == "gpu"; });
  return at == devices.end() ? nullptr : &*at;
}

}  // namespace

const CudaFacts& KnownGpus::operator()() const {
  std::call_once(asked_, [&] { facts_ = cuda_facts(); });
  return facts_;
}

std::shared_ptr<const Library> with_gpu_kernels(std::shared_ptr<const Library> library, const std::vector<DeviceId>& there, const std::vector<DeviceId>& needed, const std::string& stand_ins) {
  if (library->kernels.contains("gpu") || !first_gpu(there)) return library;
  const OpenedCudaBackend backend = open_cuda_backend();
  if (const DeviceId* gpu = first_gpu(needed); gpu && !backend.table) throw UserError(no_gpu_text(*gpu, backend.missing, stand_ins));
  if (!backend.table) return library;
  auto out = std::make_shared<Library>(*library);
  out->kernels["gpu"] = backend.table->kernels();
  return out;
}

std::string why_no_gpu_kernels() {
  const OpenedCudaBackend backend = open_cuda_backend();
  return backend.table ? "" : to_string(backend.missing);
}

std::map<int, std::int64_t> gpu_memory(const std::vector<DeviceId>& devices, double fraction, const KnownGpus& known) {
  std::map<int, std::int64_t> out;
  if (!first_gpu(devices)) return out;
  for (const GpuFacts& g : known().gpus)
    if (g.memory_bytes) out[g.index] = static_cast<std::int64_t>(fraction * static_cast<double>(g.memory_bytes));
  return out;
}

std::vector<std::vector<DeviceId>> gpu_peers(const std::vector<DeviceId>& devices, const KnownGpus& known) {
  std::set<int> gpus;
  for (const DeviceId& d : devices)
    if (d.kind == "gpu") gpus.insert(d.index);
  std::vector<std::vector<DeviceId>> out;
  if (gpus.size() < 2) return out;
  std::set<int> alone;
  for (const GpuLink& l : known().links)
    if (gpus.contains(l.from) && gpus.contains(l.to)) {
      alone.insert({l.from, l.to});
      if (l.peer) out.push_back({{0, "gpu", l.from, -1}, {0, "gpu", l.to, -1}});
    }
  if (out.size() == gpus.size() * (gpus.size() - 1) / 2) {  // all of them: one group
    out.assign(1, {});
    for (int g : gpus) out[0].push_back({0, "gpu", g, -1});
  }
  for (const auto& group : out)
    for (const DeviceId& id : group) alone.erase(id.index);
  for (int g : alone) out.push_back({{0, "gpu", g, -1}});
  return out;
}

namespace {

/// As the backend opens it.
std::shared_ptr<Device> open_gpu(const DeviceId& id, const CudaFacts& facts) {
  const OpenedCudaBackend backend = open_cuda_backend();
  const Missing stops = what_stops(id, facts);
  if (!backend.table || !stops.what.empty()) throw MissingError(stops);
  return backend.table->open(id);
}

/// The libraries that kernels call, by the beginnings of their names.
constexpr std::pair<const char*, const char*> kCalled[] = {
    {"cublas_lt_", "cuBLASLt"}, {"members_in_turn", "cuBLASLt"}, {"members_in_turn", "NVRTC"}, {"cudnn_", "cuDNN"}, {"cudnn_", "cuBLASLt"}, {"cudnn_", "NVRTC"}, {"nvrtc_", "NVRTC"}, {"aggregate", "NVRTC"}, {"nccl", "NCCL"}};

}  // namespace

Devices open_gpus(const PlacedGraph& plan, const Library& library, const KnownGpus& gpus, const Devices& open) {
  Devices out;
  for (const DeviceId& id : used_devices(plan))
    if (id.kind == "gpu" && !open.contains(to_string(id))) out[to_string(id)] = library.open_gpu ? library.open_gpu(id) : open_gpu(id, gpus());
  return out;
}

std::vector<Missing> what_stops(const PlacedGraph& plan, const Library& library, const KnownGpus& gpus) {
  std::vector<Missing> out;
  const std::vector<DeviceId> used = used_devices(plan);
  if (!first_gpu(used) || library.open_gpu) return out;
  const CudaFacts& facts = gpus();
  bool here = false;
  for (const GpuFacts& g : facts.gpus) {
    if (std::none_of(used.begin(), used.end(), [&](const DeviceId& d) { return d.kind == "gpu" && d.host == 0 && d.index == g.index; })) continue;
    here = true;
    if (!g.stops.what.empty()) out.push_back(g.stops);
  }
  if (!here) return out;
  std::set<std::string> called;
  for (const PlanNode& n : plan.nodes) {
    const std::vector<DeviceId> on = plan.cluster.ids(all_devices(plan, n));
    if (!first_gpu(on)) continue;
    for (const auto* variants : {&n.by_class, &n.by_group})
      for (const Variant& v : *variants)
        for (const auto& [prefix, library_name] : kCalled)
          if (v.kernel.starts_with(prefix)) called.insert(library_name);
  }
  for (const Missing& m : facts.missing)
    if (called.contains(m.what)) out.push_back(m);
  return out;
}

void with_words_of_absence(const PlacedGraph& plan, const std::string& stand_ins, const std::function<void()>& make_ready) {
  try {
    make_ready();
  } catch (const MissingError& e) {
    const std::vector<DeviceId> used = used_devices(plan);
    const DeviceId* device = first_gpu(used);
    for (const DeviceId& d : used)
      if (e.missing.what == to_string(d)) device = &d;
    if (!device) throw;
    throw UserError(no_gpu_text(*device, e.missing, stand_ins));
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
