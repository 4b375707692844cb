// What NVIDIA's other libraries say of themselves: this library under their names stands in for them where versions are asked for.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

/// FAKE_NVRTC_ARCHS, with commas.
std::vector<int> archs() {
  const char* text = std::getenv("FAKE_NVRTC_ARCHS");
  std::istringstream parts(text ? text : "75,80,86,89,90,100,120");
  std::vector<int> out;
  for (std::string part; std::getline(parts, part, ',');) out.push_back(std::atoi(part.c_str()));
  return out;
}

struct NvmlMemory {
  unsigned long long total, free, used;
};

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() { return static_cast<std::size_t>(number("FAKE_CUBLASLT_VERSION", 130100)); }
std::size_t cudnnGetVersion() { return static_cast<std::size_t>(number("FAKE_CUDNN_VERSION", 91900)); }

std::size_t cudnnGetCudartVersion() { return static_cast<std::size_t>(number("FAKE_CUDNN_CUDA", 13000)); }

int ncclGetVersion(int* version) {
  *version = number("FAKE_NCCL_VERSION", 22809);
  return 0;
}

int nvrtcVersion(int* major, int* minor) {
  *major = number("FAKE_NVRTC_VERSION", 13000) / 1000;
  *minor = 0;
  return 0;
}

int nvrtcGetSupportedArchs(int* out) {
  for (int arch : archs()) *out++ = arch;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(archs().size());
  return 0;
}

int nvmlInit_v2() { return number("FAKE_NVML_INIT", 0); }
int nvmlShutdown() { return 0; }

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.65.06");
  return 0;
}

/// A device is its PCI bus.
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  unsigned domain = 0, bus = 0;
  if (std::sscanf(id, "%x:%x:", &domain, &bus) != 2) return 2;
  *device = reinterpret_cast<void*>(static_cast<std::size_t>(bus));
  return 0;
}

int nvmlDeviceGetMemoryInfo(void*, NvmlMemory* memory) {
  *memory = {1u << 30, static_cast<unsigned>(number("FAKE_NVML_FREE", 3 << 28)), 1u << 28};
  return 0;
}

/// Busier by ten percent from bus to bus.
int nvmlDeviceGetUtilizationRates(void* device, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = 10 * static_cast<unsigned>(reinterpret_cast<std::size_t>(device));
  gpu_and_memory[1] = 7;
  return 0;
}

int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 123500;
  return 0;
}

/// The first two are joined by NVLink.
int nvmlDeviceGetP2PStatus(void* a, void* b, int capability, int* status) {
  *status = capability == 2 && reinterpret_cast<std::size_t>(a) + reinterpret_cast<std::size_t>(b) == 3 ? 0 : 1;
  return 0;
}

}  // extern "C"
