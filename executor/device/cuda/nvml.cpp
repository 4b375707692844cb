#include <dlfcn.h>

#include <cstdint>

#include <belfry/executor/device/cuda/gpus_internal.h>
#include <belfry/executor/device/event.h>
#include <belfry/graph/error.h>

namespace belfry {
namespace {

/// What nvml.h declares, which the toolkit does not hold.
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlUse {
  unsigned gpu, memory;
};
constexpr int kP2pNvlink = 2, kP2pOk = 0;

template <class F>
F* function(void* library, const char* name) {
  return library ? reinterpret_cast<F*>(dlsym(library, name)) : nullptr;
}

}  // namespace

Nvml::Nvml(void* library) : library_(library) {
  auto init = function<int()>(library_, "nvmlInit_v2");
  works_ = init && init() == 0;
}

Nvml::~Nvml() {
  auto shutdown = function<int()>(library_, "nvmlShutdown");
  if (works_ && shutdown) shutdown();
}

std::string Nvml::driver_release() const {
  char text[96] = "";
  auto get = function<int(char*, unsigned)>(library_, "nvmlSystemGetDriverVersion");
  return works_ && get && get(text, sizeof text) == 0 ? text : "";
}

/// By PCI id and never by index: CUDA_VISIBLE_DEVICES does not hold for NVML.
void* Nvml::device(const std::string& pci) const {
  void* out = nullptr;
  auto get = function<int(const char*, void**)>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  return works_ && get && get(pci.c_str(), &out) == 0 ? out : nullptr;
}

Nvml::Memory Nvml::memory(const std::string& pci) const {
  NvmlMemory memory{};
  void* d = device(pci);
  auto get = function<int(void*, NvmlMemory*)>(library_, "nvmlDeviceGetMemoryInfo");
  return d && get && get(d, &memory) == 0 ? Memory{static_cast<std::int64_t>(memory.total), static_cast<std::int64_t>(memory.free)} : Memory{};
}

GpuReading Nvml::read(const std::string& pci) const {
  GpuReading out;
  void* d = device(pci);
  if (!d) return out;
  NvmlUse use{};
  NvmlMemory memory{};
  unsigned milliwatts = 0;
  if (auto get = function<int(void*, NvmlUse*)>(library_, "nvmlDeviceGetUtilizationRates"); get && get(d, &use) == 0)
    out.busy = static_cast<int>(use.gpu), out.memory_busy = static_cast<int>(use.memory);
  if (auto get = function<int(void*, NvmlMemory*)>(library_, "nvmlDeviceGetMemoryInfo"); get && get(d, &memory) == 0) out.used_bytes = static_cast<std::int64_t>(memory.used);
  if (auto get = function<int(void*, unsigned*)>(library_, "nvmlDeviceGetPowerUsage"); get && get(d, &milliwatts) == 0) out.watts = milliwatts / 1e3;
  out.at_ns = now_ns();
  return out;
}

namespace {

class NvmlMeter : public GpuMeter {
 public:
  NvmlMeter(CudaToolkit& toolkit, const std::vector<int>& gpus) : nvml_(toolkit.library(CudaLibrary::nvml)), gpus_(gpus) {
    if (!nvml_.works()) throw DeviceError("NVML does not start; look with nvidia-smi whether the driver works");
    const CudaDriver& d = toolkit.driver();
    for (int gpu : gpus) {
      CUdevice device = 0;
      char text[32] = "";
      check_driver(d, d.cuDeviceGet(&device, gpu), "cuDeviceGet");
      check_driver(d, d.cuDeviceGetPCIBusId(text, sizeof text, device), "cuDeviceGetPCIBusId");
      pci_.emplace_back(text);
    }
  }
  void read(std::vector<GpuReading>& out) override {
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      out.push_back(nvml_.read(pci_[i]));
      out.back().gpu = gpus_[i];
    }
  }

 private:
  Nvml nvml_;
  std::vector<int> gpus_;
  std::vector<std::string> pci_;
};

}  // namespace

std::unique_ptr<GpuMeter> nvml_meter(const std::shared_ptr<CudaToolkit>& toolkit, const std::vector<int>& gpus) { return std::make_unique<NvmlMeter>(*toolkit, gpus); }

bool Nvml::nvlink(const std::string& pci_a, const std::string& pci_b) const {
  void *a = device(pci_a), *b = device(pci_b);
  int status = -1;
  auto get = function<int(void*, void*, int, int*)>(library_, "nvmlDeviceGetP2PStatus");
  return a && b && get && get(a, b, kP2pNvlink, &status) == 0 && status == kP2pOk;
}

}  // namespace belfry
