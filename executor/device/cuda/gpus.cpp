#include <belfry/executor/device/cuda/gpus_internal.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/graph/error.h>

namespace belfry {
namespace {

constexpr int kWanted = CUDA_VERSION / 1000 * 1000;
constexpr const char* kDriverHelp = "install NVIDIA's driver 580 or later";

constexpr const char* kFaultHelp = "look with nvidia-smi whether the GPU works; after a fault it may need a reset";

/// A GPU of which a question fails.
Missing faulty(int index, const std::string& error) { return {fmt::format("gpu:{}", index), error, kFaultHelp}; }

Missing no_driver(const OpenedDriver& d) {
  const char* named = std::getenv("BELFRY_CUDA_DRIVER");
  return {"CUDA driver", fmt::format("it cannot be opened: {}", d.why),
          named && *named ? std::string("unset BELFRY_CUDA_DRIVER, or let it name driver 580 or later") : fmt::format("{}; in a container, start it with access to the GPUs", kDriverHelp)};
}

Missing too_old(const OpenedDriver& d, int version) {
  return {"CUDA driver", fmt::format("{} knows CUDA {} at most, and this build needs {}", d.path, cuda_version_text(version), cuda_version_text(kWanted)), kDriverHelp};
}

Missing not_whole(const OpenedDriver& d) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> some(d.absent.begin(), d.absent.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, d.absent.size())));
  return {"CUDA driver", fmt::format("{} lacks {} of {} functions: {}{}", d.path, d.absent.size(), kCudaDriverEntries, fmt::join(some, ", "), d.absent.size() > kShown ? ", …" : ""),
          fmt::format("{}; if BELFRY_CUDA_DRIVER is set, let it name a driver", kDriverHelp)};
}

Missing not_started(const OpenedDriver& d, CUresult code) {
  std::string way_out = fmt::format("{} and load its kernel module", kDriverHelp);
  if (code == CUDA_ERROR_NO_DEVICE) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    way_out = visible ? fmt::format("CUDA_VISIBLE_DEVICES is '{}': let it name a GPU that is here, or unset it", visible)
                      : "look with nvidia-smi whether the driver sees a GPU; in a container, give it one";
  } else if (code == CUDA_ERROR_STUB_LIBRARY) {
    const char* named = std::getenv("BELFRY_CUDA_DRIVER");
    way_out = fmt::format("{} is the toolkit's stub: {}; {}", d.path, named && *named ? "unset BELFRY_CUDA_DRIVER" : "take its folder out of LD_LIBRARY_PATH", kDriverHelp);
  } else if (code == CUDA_ERROR_SYSTEM_NOT_READY) {
    way_out = "start the service nvidia-fabricmanager";
  } else if (code == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) {
    way_out = "the driver's library and its kernel module differ: start the machine anew";
  }
  return {"GPU", fmt::format("cuInit gives {}", error_text(d.table, code)), way_out};
}

std::string uuid_text(const CUuuid& uuid) {
  std::string out = "GPU-";
  for (int i = 0; i < 16; ++i) out += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
  return out;
}

/// Of the first call that fails, the name and code.
class Calls {
 public:
  explicit Calls(const CudaDriver& driver) : driver_(driver) {}
  bool ok(CUresult code, const char* call) {
    if (code != CUDA_SUCCESS && error_.empty()) error_ = fmt::format("{} gives {}", call, error_text(driver_, code));
    return code == CUDA_SUCCESS;
  }
  const std::string& error() const { return error_; }

 private:
  const CudaDriver& driver_;
  std::string error_;
};

/// Needs a context, which takes memory of the GPU for as long as it is held: only where NVML does not tell of it.
std::int64_t free_by_context(const CudaDriver& d, CUdevice device) {
  CUcontext context = nullptr;
  if (d.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return -1;
  std::size_t free = 0, total = 0;
  bool told = d.cuCtxSetCurrent(context) == CUDA_SUCCESS && d.cuMemGetInfo(&free, &total) == CUDA_SUCCESS;
  d.cuCtxSetCurrent(nullptr);
  d.cuDevicePrimaryCtxRelease(device);
  return told ? static_cast<std::int64_t>(free) : -1;
}

GpuFacts gpu(const CudaDriver& d, const Nvml& nvml, int index, CUdevice device, Calls& calls) {
  GpuFacts out;
  out.index = index;
  char text[256] = "";
  if (calls.ok(d.cuDeviceGetName(text, sizeof text, device), "cuDeviceGetName")) out.name = text;
  if (calls.ok(d.cuDeviceGetPCIBusId(text, sizeof text, device), "cuDeviceGetPCIBusId")) out.pci = text;
  CUuuid uuid{};
  if (calls.ok(d.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid")) out.uuid = uuid_text(uuid);
  std::size_t bytes = 0;
  if (calls.ok(d.cuDeviceTotalMem(&bytes, device), "cuDeviceTotalMem")) out.memory_bytes = static_cast<std::int64_t>(bytes);
  calls.ok(d.cuDeviceGetAttribute(&out.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute");
  calls.ok(d.cuDeviceGetAttribute(&out.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "cuDeviceGetAttribute");
  calls.ok(d.cuDeviceGetAttribute(&out.multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "cuDeviceGetAttribute");
  const Nvml::Memory card = nvml.memory(out.pci);
  // A part has half of its card at the most, and a whole GPU a few hundredths less than NVML counts.
  if (card.free < 0 || out.memory_bytes < card.bytes / 4 * 3) out.free_bytes = free_by_context(d, device);
  else out.free_bytes = std::min(card.free, out.memory_bytes);
  return out;
}

GpuLink link(const CudaDriver& d, const Nvml& nvml, const CudaFacts& facts, const std::vector<CUdevice>& devices, std::size_t a, std::size_t b, Calls& calls) {
  int there = 0, back = 0;
  calls.ok(d.cuDeviceCanAccessPeer(&there, devices[a], devices[b]), "cuDeviceCanAccessPeer");
  calls.ok(d.cuDeviceCanAccessPeer(&back, devices[b], devices[a]), "cuDeviceCanAccessPeer");
  GpuLink out{facts.gpus[a].index, facts.gpus[b].index, there != 0 && back != 0, "host"};
  if (out.peer) out.kind = nvml.nvlink(facts.gpus[a].pci, facts.gpus[b].pci) ? "NVLink" : nvml.works() ? "PCIe" : "peer";
  return out;
}

void add_gpus(const OpenedDriver& driver, const Nvml& nvml, CudaFacts& out) {
  const CudaDriver& d = driver.table;
  Calls calls(d);
  int count = 0;
  calls.ok(d.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (calls.error().empty() && count == 0) {
    out.missing.push_back(not_started(driver, CUDA_ERROR_NO_DEVICE));
    out.missing.back().why = "the driver sees none";
    return;
  }
  std::vector<CUdevice> devices;
  for (int i = 0; i < count && calls.error().empty(); ++i) {
    Calls own(d);
    CUdevice device = 0;
    if (own.ok(d.cuDeviceGet(&device, i), "cuDeviceGet")) {
      devices.push_back(device);
      out.gpus.push_back(gpu(d, nvml, i, device, own));
      if (!own.error().empty()) out.gpus.back().stops = faulty(i, own.error());
    } else {
      out.missing.push_back(faulty(i, own.error()));
    }
  }
  for (std::size_t a = 0; a < out.gpus.size(); ++a)
    for (std::size_t b = a + 1; b < out.gpus.size() && calls.error().empty(); ++b) out.links.push_back(link(d, nvml, out, devices, a, b, calls));
  if (!calls.error().empty()) out.missing.push_back({"GPU", calls.error(), kFaultHelp});
}

std::string capability_text(int architecture) { return fmt::format("{}.{}", architecture / 10, architecture % 10); }

/// A GPU for which no kernel can be generated.
Missing not_compiled(const GpuFacts& g, CudaLibraries& libraries) {
  constexpr int kLeast = 75;  // of CUDA 13: what there is besides depends on the NVRTC at hand
  const int own = g.major * 10 + g.minor;
  std::vector<int> known = libraries.architectures();
  if (known.empty()) known = {kLeast, std::max(kLeast, own)};
  if (std::find(known.begin(), known.end(), own) != known.end()) return {};
  const std::string what = fmt::format("gpu:{}", g.index);
  if (own < known.front())
    return {what, fmt::format("compute capability {} is below {}, the least that CUDA {} compiles for", capability_text(own), capability_text(known.front()), kWanted / 1000), "take a GPU of the Turing generation (2018) or a later one"};
  const CudaLibraryFacts nvrtc = libraries.facts(CudaLibrary::nvrtc);
  return {what, fmt::format("NVRTC {} ({}) compiles for compute capabilities {} to {}, and not for {}", nvrtc.version, nvrtc.path, capability_text(known.front()), capability_text(known.back()), capability_text(own)),
          fmt::format("install the latest NVRTC of CUDA {} (pip install --upgrade nvidia-cuda-nvrtc), or name its folder in BELFRY_CUDA_PATH", kWanted / 1000)};
}

}  // namespace

Missing start_driver(const OpenedDriver& d, CudaFacts& out) {
  if (!d.loaded) return no_driver(d);
  out.driver = d.path;
  int version = 0;
  // Before the symbols: an older driver lacks some.
  if (d.table.cuDriverGetVersion && d.table.cuDriverGetVersion(&version) == CUDA_SUCCESS) {
    out.driver_cuda = cuda_version_text(version);
    if (version < kWanted) return too_old(d, version);
  }
  if (!d.absent.empty()) return not_whole(d);
  if (CUresult code = d.table.cuInit(0); code != CUDA_SUCCESS) return not_started(d, code);
  return {};
}

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

CudaFacts probe_gpus(const OpenedDriver& driver, CudaLibraries& libraries) {
  CudaFacts out;
  out.wanted = cuda_version_text(kWanted);
  const Missing stops = start_driver(driver, out);
  for (CudaLibrary which : kCudaLibraries) {
    // NVML comes with the driver and is not there without.
    if (which == CudaLibrary::nvml && !stops.what.empty()) continue;
    if (CudaLibraryFacts f = libraries.facts(which); !f.path.empty()) out.libraries.push_back(std::move(f));
  }
  if (stops.what.empty()) {
    Nvml nvml(libraries.missing(CudaLibrary::nvml).what.empty() ? libraries.open(CudaLibrary::nvml) : nullptr);
    out.driver_release = nvml.driver_release();
    add_gpus(driver, nvml, out);
    for (GpuFacts& g : out.gpus)
      if (g.stops.what.empty()) g.stops = not_compiled(g, libraries);
  } else {
    out.missing.push_back(stops);
  }
  for (CudaLibrary which : kCudaLibraries)
    if (which != CudaLibrary::nvml || stops.what.empty())
      if (Missing m = libraries.missing(which); !m.what.empty()) out.missing.push_back(std::move(m));
  return out;
}

}  // namespace belfry
