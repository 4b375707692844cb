// What stands behind the fake driver's handles, and the steps of its streams.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "fake_cuda.h"
#include "races.h"

struct CUstream_st;

/// One step of a stream.
struct FakeOp {
  std::function<bool()> ready;       ///< null: at once
  std::function<CUresult()> run;
  bool calls_out = false;            ///< a function of the host, which runs without the lock
  std::function<FakeOp(CUstream_st&)> choose = {};  ///< if set, what runs is found when its turn comes
  fake_cuda::Access access = {};
  bool tells_host = false;           ///< once it has run, the host knows
  fake_cuda::Clock known = {};       ///< to the host when it was queued
  int strand = 0;                    ///< of a node of a graph: its own
  fake_cuda::Clock* clock = nullptr;
};

struct CUctx_st {
  int device = 0;
  int held = 0;
  std::size_t used = 0;
  std::set<CUctx_st*> peers;
  CUresult broken = CUDA_SUCCESS;    ///< once set, all calls give it
};
struct CUstream_st {
  CUctx_st* context = nullptr;
  std::deque<FakeOp> ops;
  bool busy = false;
  int strand = 0, priority = 0;
  fake_cuda::Clock clock;            ///< what happens before its next step
  CUgraph capture = nullptr;         ///< what is queued goes there, behind the nodes of `tail`
  std::set<std::size_t> tail;
};
struct FakeRecord {
  bool done = false;
  std::uint64_t time = 0;
  fake_cuda::Clock clock;
};
struct CUevent_st {
  CUctx_st* context = nullptr;
  bool timing = true;
  std::shared_ptr<FakeRecord> last;  ///< null until it is recorded
  CUgraph capture = nullptr;         ///< recorded while that was captured, behind those nodes
  std::set<std::size_t> nodes;
};
struct CUkern_st {
  std::vector<std::size_t> sizes;
  fake_cuda::Kernel run = nullptr;
  unsigned shared = 48 * 1024;  // bytes that a launch may ask for
};
struct CUlib_st {};
