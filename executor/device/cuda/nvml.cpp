#include <dlfcn.h>

#include <cstdint>

#include <belfry/executor/device/cuda/gpus_internal.h>

namespace belfry {
namespace {

/// What nvml.h declares, which the toolkit does not hold.
struct NvmlMemory {
  unsigned long long total, free, used;
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

std::int64_t Nvml::free_bytes(const std::string& pci) const {
  NvmlMemory memory{};
  void* d = device(pci);
  auto get = function<int(void*, NvmlMemory*)>(library_, "nvmlDeviceGetMemoryInfo");
  return d && get && get(d, &memory) == 0 ? static_cast<std::int64_t>(memory.free) : -1;
}

bool Nvml::nvlink(const std::string& pci_a, const std::string& pci_b) const {
  void *a = device(pci_a), *b = device(pci_b);
  int status = -1;
  auto get = function<int(void*, void*, int, int*)>(library_, "nvmlDeviceGetP2PStatus");
  return a && b && get && get(a, b, kP2pNvlink, &status) == 0 && status == kP2pOk;
}

}  // namespace belfry
