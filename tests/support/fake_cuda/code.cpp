// Kernels: functions of the host, found by name. Any code is a library that holds them all.
#include <algorithm>
#include <cstring>

#include "state_internal.h"

using namespace fake_cuda;

extern "C" {

void fake_cuda_add_kernel(const char* name, const std::size_t* sizes, std::size_t count, fake_cuda::Kernel kernel) {
  std::lock_guard lock(state().mutex);
  state().kernels[name] = {{sizes, sizes + count}, kernel};
}

CUresult cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*, void**, unsigned) {
  Call call("cuLibraryLoadData");
  if (call.error) return call.error;
  if (!code) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult forbidden = not_while_captured(nullptr)) return forbidden;
  *out = new CUlib_st;
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  Call call("cuLibraryUnload");
  if (call.error) return call.error;
  delete library;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  Call call("cuLibraryGetKernel");
  if (call.error) return call.error;
  auto at = state().kernels.find(name);
  if (!library || at == state().kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *out = &at->second;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* out, CUfunction_attribute attribute, CUkernel kernel, CUdevice) {
  Call call("cuKernelGetAttribute");
  if (call.error) return call.error;
  if (!kernel || attribute != CU_FUNC_ATTRIBUTE_NUM_REGS) return CUDA_ERROR_INVALID_VALUE;
  *out = 32;
  return CUDA_SUCCESS;
}

/// More shared memory than by default, as much as every GPU since Ampere has.
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int bytes, CUkernel kernel, CUdevice) {
  Call call("cuKernelSetAttribute");
  if (call.error) return call.error;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_NOT_SUPPORTED;
  if (!kernel || bytes < 0 || bytes > 99 * 1024) return CUDA_ERROR_INVALID_VALUE;
  kernel->shared = static_cast<unsigned>(bytes);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int*, CUfunction, int, std::size_t) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra) {
  Call call("cuLaunchKernelEx", Needs::context, true);
  if (call.error) return call.error;
  const auto early = [](const CUlaunchAttribute& a) { return a.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION; };  // and what waits by itself may as well begin late
  if (extra || !std::all_of(config->attrs, config->attrs + config->numAttrs, early)) return CUDA_ERROR_NOT_SUPPORTED;
  const auto* kernel = reinterpret_cast<const CUkern_st*>(function);
  const fake_cuda::Launch launch{{config->gridDimX, config->gridDimY, config->gridDimZ}, {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, config->numAttrs > 0 && config->attrs->value.programmaticStreamSerializationAllowed != 0};
  const auto empty = [](unsigned n) { return n == 0; };
  if (!kernel || std::any_of(launch.grid, launch.grid + 3, empty) || std::any_of(launch.block, launch.block + 3, empty)) return CUDA_ERROR_INVALID_VALUE;
  if (std::uint64_t{launch.block[0]} * launch.block[1] * launch.block[2] > 1024 || launch.shared_bytes > kernel->shared) return CUDA_ERROR_INVALID_VALUE;
  // The caller may change its arguments as soon as this returns.
  std::vector<std::vector<unsigned char>> kept;
  for (std::size_t i = 0; i < kernel->sizes.size(); ++i) {
    kept.emplace_back(kernel->sizes[i]);
    std::memcpy(kept.back().data(), arguments[i], kernel->sizes[i]);
  }
  return queue(call, config->hStream, {{}, [launch, run = kernel->run, kept]() mutable {
                 std::vector<void*> pointers;
                 for (auto& bytes : kept) pointers.push_back(bytes.data());
                 run(launch, pointers.data());
                 return CUDA_SUCCESS;
               }});
}

}  // extern "C"
