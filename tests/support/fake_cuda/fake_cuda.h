// A CUDA driver for tests, chosen by BELFRY_CUDA_DRIVER: memory is the host's, streams are queues that run in a random legal order.
//
// Settings, read by cuInit: FAKE_CUDA_GPUS (1), FAKE_CUDA_NAME, FAKE_CUDA_MEMORY (bytes of each, 1 GiB), FAKE_CUDA_CAPABILITY (9.0),
// FAKE_CUDA_DRIVER_VERSION (13000), FAKE_NVRTC_ARCHS (75,80,86,89,90,100,120), FAKE_CUDA_PEER (1), FAKE_CUDA_INIT (what cuInit gives, 0), FAKE_CUDA_SEED (1), FAKE_CUDA_PATIENCE
// (milliseconds until a wait that nothing can end gives CUDA_ERROR_LAUNCH_TIMEOUT, 20000), FAKE_CUDA_WORKS (0; 1: streams
// go on also while nobody calls, as a device does), and FAKE_CUDA_FAIL=name:n:code,… : the n-th
// call of that name since cuInit fails. A code that breaks a context comes to light when the work runs, and stays.
// Steps are held to what orders them: two that touch the same bytes of a block, one of them writing, and that no stream, event, graph,
// value or wait of the host puts in order, are a race, whatever order they ran in. Copies and fills say what they touch, kernels of the host
// by fake_cuda_declare, the host by fake_cuda_host. A kernel that reaches for memory of a GPU that is no peer gives CUDA_ERROR_ILLEGAL_ADDRESS. What the host was told by one function of the host, all its threads know.
// Capture records a graph, and fails on a side stream that is not joined, a wait that leaves the graph, or a call that waits.
// An event is recorded on streams of its context alone, and kernels are launched on those of the current one, as with the driver.
// What it cannot do gives CUDA_ERROR_NOT_SUPPORTED: the default stream, waits for values and graphs within a capture, occupancy.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

struct Launch {
  unsigned grid[3], block[3], shared_bytes;
  bool early;  ///< it may begin before what stands before it has ended
};
/// Pointers to the arguments, as they were when the kernel was launched.
using Kernel = void (*)(const Launch& launch, void** arguments);

/// Exported as fake_cuda_add_kernel: a kernel under the name that cuLibraryGetKernel asks for, with the bytes of each argument.
using AddKernel = void(const char* name, const std::size_t* sizes, std::size_t count, Kernel kernel);
/// Exported as fake_cuda_reset: forgets contexts, streams, memory and counted calls. Handles from before are no more.
using Reset = void();
struct Touched {
  const void* at;
  std::size_t bytes;
  bool writes;
};
/// Exported as fake_cuda_declare: what the next step that this thread queues touches; a function of the host is a kernel then, and tells the host nothing.
using Declare = void(const char* name, const Touched* ranges, std::size_t count);
/// Exported as fake_cuda_host: the host touches them, now.
using Host = void(const char* name, const Touched* ranges, std::size_t count);
/// Exported as fake_cuda_races: a line per race since the last reset.
using Races = const char*();

/// Exported as fake_cuda_ranges: a line per NVTX range since the last call, indented by those around it.
using Ranges = const char*();

/// Exported as fake_cuda_used: bytes of a device's memory that are allocated.
using Used = std::size_t(int device);

/// Exported as fake_cuda_calls: how often a function was called since the last reset; "priorities kept" and "priorities lost": how many
/// graphs have kernels of several priorities, and keep them or not.
using Calls = int(const char* name);

}  // namespace fake_cuda
