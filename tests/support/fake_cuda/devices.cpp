// Start, devices, contexts, and the texts of errors.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "state_internal.h"

using namespace fake_cuda;

namespace {

/// The physical number; -1 for no device.
int physical(CUdevice device) {
  const auto& gpus = state().settings.gpus;
  return device >= 0 && device < static_cast<int>(gpus.size()) ? gpus[static_cast<std::size_t>(device)] : -1;
}

void write(char* to, int length, const char* text) {
  if (length > 0) std::snprintf(to, static_cast<std::size_t>(length), "%s", text);
}

const char* name_of(CUresult code) {
  switch (code) {
    case CUDA_SUCCESS: return "CUDA_SUCCESS";
    case CUDA_ERROR_INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
    case CUDA_ERROR_OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
    case CUDA_ERROR_NOT_INITIALIZED: return "CUDA_ERROR_NOT_INITIALIZED";
    case CUDA_ERROR_NO_DEVICE: return "CUDA_ERROR_NO_DEVICE";
    case CUDA_ERROR_INVALID_DEVICE: return "CUDA_ERROR_INVALID_DEVICE";
    case CUDA_ERROR_INVALID_CONTEXT: return "CUDA_ERROR_INVALID_CONTEXT";
    case CUDA_ERROR_ECC_UNCORRECTABLE: return "CUDA_ERROR_ECC_UNCORRECTABLE";
    case CUDA_ERROR_INVALID_HANDLE: return "CUDA_ERROR_INVALID_HANDLE";
    case CUDA_ERROR_NOT_FOUND: return "CUDA_ERROR_NOT_FOUND";
    case CUDA_ERROR_NOT_READY: return "CUDA_ERROR_NOT_READY";
    case CUDA_ERROR_ILLEGAL_ADDRESS: return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case CUDA_ERROR_LAUNCH_TIMEOUT: return "CUDA_ERROR_LAUNCH_TIMEOUT";
    case CUDA_ERROR_LAUNCH_FAILED: return "CUDA_ERROR_LAUNCH_FAILED";
    case CUDA_ERROR_NOT_PERMITTED: return "CUDA_ERROR_NOT_PERMITTED";
    case CUDA_ERROR_NOT_SUPPORTED: return "CUDA_ERROR_NOT_SUPPORTED";
    case CUDA_ERROR_SYSTEM_NOT_READY: return "CUDA_ERROR_SYSTEM_NOT_READY";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: return "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    default: return nullptr;
  }
}

}  // namespace

extern "C" {

void fake_cuda_reset() {
  State& t = state();
  std::lock_guard lock(t.mutex);
  for (auto& [address, block] : t.blocks)
    if (block.owned) std::free(reinterpret_cast<void*>(address));
  t.blocks.clear();
  t.streams.clear();
  for (CUctx_st& c : t.contexts) {
    int device = c.device;
    c = {};
    c.device = device;
  }
  t.calls.clear();
  forget_races();
  t.last = nullptr;
  t.started = false;
  make_current(nullptr);
}

std::size_t fake_cuda_used(int device) {
  std::lock_guard lock(state().mutex);
  return state().contexts.at(static_cast<std::size_t>(device)).used;
}

int fake_cuda_calls(const char* name) {
  std::lock_guard lock(state().mutex);
  const auto at = state().calls.find(name);
  return at == state().calls.end() ? 0 : at->second;
}

CUresult cuInit(unsigned flags) {
  Call call("cuInit", Needs::nothing);
  if (call.error) return call.error;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (int code = setting("FAKE_CUDA_INIT", 0)) return static_cast<CUresult>(code);
  read_settings();
  if (state().settings.gpus.empty()) return CUDA_ERROR_NO_DEVICE;
  state().started = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  Call call("cuDriverGetVersion", Needs::nothing);
  if (call.error) return call.error;
  *version = setting("FAKE_CUDA_DRIVER_VERSION", 13000);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char** text) {
  *text = name_of(code);
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char** text) {
  *text = name_of(code) ? "as the fake driver was told" : nullptr;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int* count) {
  Call call("cuDeviceGetCount", Needs::start);
  if (call.error) return call.error;
  *count = static_cast<int>(state().settings.gpus.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  Call call("cuDeviceGet", Needs::start);
  if (call.error) return call.error;
  if (physical(ordinal) < 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  Call call("cuDeviceGetName", Needs::start);
  if (call.error) return call.error;
  if (physical(device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  write(name, length, state().settings.name.c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  Call call("cuDeviceGetUuid", Needs::start);
  if (call.error) return call.error;
  if (physical(device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  std::memset(uuid->bytes, 0xf0 + physical(device), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
  Call call("cuDeviceTotalMem", Needs::start);
  if (call.error) return call.error;
  if (physical(device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = state().settings.memory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  Call call("cuDeviceGetAttribute", Needs::start);
  if (call.error) return call.error;
  if (physical(device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = state().settings.major; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = state().settings.minor; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  Call call("cuDeviceGetPCIBusId", Needs::start);
  if (call.error) return call.error;
  if (physical(device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  char text[32];
  std::snprintf(text, sizeof text, "0000:%02x:00.0", physical(device) + 1);
  write(id, length, text);
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  Call call("cuDeviceCanAccessPeer", Needs::start);
  if (call.error) return call.error;
  if (physical(device) < 0 || physical(peer) < 0) return CUDA_ERROR_INVALID_DEVICE;
  *can = state().settings.peer && device != peer;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  Call call("cuDevicePrimaryCtxRetain", Needs::start);
  if (call.error) return call.error;
  if (physical(device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  *context = &state().contexts.at(static_cast<std::size_t>(device));
  ++(*context)->held;
  return (*context)->broken;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  Call call("cuDevicePrimaryCtxRelease", Needs::start);
  if (call.error) return call.error;
  if (physical(device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  CUctx_st& context = state().contexts.at(static_cast<std::size_t>(device));
  if (context.held == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --context.held;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  Call call("cuCtxSetCurrent", Needs::start);
  if (call.error) return call.error;
  if (context && context->held == 0) return CUDA_ERROR_INVALID_CONTEXT;
  make_current(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  Call call("cuCtxGetDevice");
  if (call.error) return call.error;
  *device = call.context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  Call call("cuCtxEnablePeerAccess");
  if (call.error) return call.error;
  if (flags || !peer) return CUDA_ERROR_INVALID_VALUE;
  if (!state().settings.peer) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return call.context->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

}  // extern "C"
