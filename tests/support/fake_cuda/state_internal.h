// What the parts of the fake driver share.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "handles_internal.h"

namespace fake_cuda {

struct Failure {
  std::string name;
  int at;
  CUresult code;
};
struct Settings {
  std::vector<int> gpus;             ///< those that are visible
  std::string name;
  std::size_t memory = 0;
  int major = 9, minor = 0, driver_version = 13000, patience = 20000;
  bool peer = true, works = false;
  std::vector<Failure> failures;
};
struct Block {
  std::size_t bytes;
  CUctx_st* context;                 ///< null: of the host
  bool owned;                        ///< allocated here, not only registered
};
struct State {
  std::mutex mutex;
  bool started = false;
  Settings settings;
  std::mt19937_64 random{1};
  std::deque<CUctx_st> contexts;     ///< one per visible device
  std::list<CUstream_st> streams;
  std::map<std::uintptr_t, Block> blocks;
  std::map<std::string, int> calls;
  std::map<std::string, CUkern_st> kernels;
  std::uint64_t clock = 0;           ///< steps that have run
  CUstream_st* last = nullptr;       ///< whose step ran last
};
State& state();
int setting(const char* name, int otherwise);
void read_settings();

enum class Needs { nothing, start, context };
/// Every call begins with one: takes the lock, counts, and says at once what the call has to give, if anything.
struct Call {
  explicit Call(const char* name, Needs needs = Needs::context, bool queues = false);
  std::unique_lock<std::mutex> lock;
  CUresult error = CUDA_SUCCESS;
  CUresult later = CUDA_SUCCESS;     ///< what the queued work has to give
  CUctx_st* context = nullptr;       ///< the current one
};

void make_current(CUctx_st* context);
/// Runs steps in a random legal order until `done`. What broke the context, or CUDA_ERROR_LAUNCH_TIMEOUT if nothing can go on.
CUresult run_until(Call& call, const std::function<bool()>& done);
/// Perhaps a few steps: a device works while the host does.
void run_some(Call& call);
CUresult queue(Call& call, CUstream stream, FakeOp op);
/// The same, and a wait for an event, while the stream is captured.
CUresult capture(CUstream stream, FakeOp op);
CUresult capture_wait(CUstream stream, CUevent event);
/// An error, and the capture is lost, while the stream is captured; null: while any is whose mode forbids the call to this thread.
CUresult not_while_captured(CUstream stream);
bool idle(const CUstream_st& stream);
/// The block that holds the byte; null if none does.
const Block* block_of(std::uintptr_t address, std::uintptr_t* start = nullptr);

}  // namespace fake_cuda
