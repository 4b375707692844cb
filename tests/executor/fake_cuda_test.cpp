// The fake driver itself: a missing wait shows, what is ordered stays ordered, memory has a limit, errors stay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "fake_gpus.h"
#include "host_note.h"

namespace belfry::test {
namespace {

using FakeCuda = FakeGpus;
constexpr int kSeeds = 60;

/// Fills on one stream, copies on another, and gives what was copied.
int filled_and_copied(const CudaDriver& d, CUdeviceptr from, CUdeviceptr to, CUstream a, CUstream b, CUevent wait) {
  unsigned char seen = 0;
  EXPECT_EQ(d.cuMemsetD8Async(from, 7, 64, a), CUDA_SUCCESS);
  if (wait) {
    EXPECT_EQ(d.cuEventRecord(wait, a), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamWaitEvent(b, wait, 0), CUDA_SUCCESS);
  }
  EXPECT_EQ(d.cuMemcpyAsync(to, from, 64, b), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyAsync(reinterpret_cast<std::uintptr_t>(&seen), to, 1, b), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(b), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(a), CUDA_SUCCESS);
  return seen;
}

TEST_F(FakeCuda, a_missing_wait_is_seen_and_a_wait_is_kept) {
  may_race = true;
  int right_without = 0, right_with = 0;
  for (int seed = 0; seed < kSeeds; ++seed)
    for (bool waits : {false, true}) {
      start(seed);
      CUdeviceptr p = allocated(64), q = allocated(64);
      (waits ? right_with : right_without) += filled_and_copied(d, p, q, stream(), stream(), waits ? event() : nullptr) == 7;
      // Named whatever order they ran in.
      if (waits) EXPECT_EQ(races(), "");
      else EXPECT_THAT(races(), testing::AllOf(testing::HasSubstr("a fill of 64 bytes"), testing::HasSubstr("a copy of 64 bytes from GPU 0 to GPU 0"), testing::HasSubstr("nothing orders the two")));
    }
  EXPECT_EQ(right_with, kSeeds);
  EXPECT_GT(right_without, 0);
  EXPECT_LT(right_without, kSeeds);
}

TEST_F(FakeCuda, runs_only_legal_orders_of_random_graphs) {
  std::set<std::vector<int>> orders;
  for (int seed = 0; seed < kSeeds; ++seed) {
    start(seed);
    std::mt19937 random(7);
    const int steps = 24;
    std::vector<CUstream> streams = {stream(), stream(), stream()};
    std::vector<int> order, on(steps);
    std::vector<Note> notes(steps);
    std::vector<CUevent> done(steps);
    std::vector<std::pair<int, int>> before;
    for (int i = 0; i < steps; ++i) {
      on[static_cast<std::size_t>(i)] = static_cast<int>(random() % 3);
      CUstream s = streams[static_cast<std::size_t>(on[static_cast<std::size_t>(i)])];
      for (int j = 0; j < i; ++j) {
        bool same = on[static_cast<std::size_t>(i)] == on[static_cast<std::size_t>(j)];
        if (!same && random() % 6) continue;
        before.emplace_back(j, i);
        if (!same) d.cuStreamWaitEvent(s, done[static_cast<std::size_t>(j)], 0);
      }
      notes[static_cast<std::size_t>(i)] = {&order, i};
      EXPECT_EQ(d.cuLaunchHostFunc(s, Note::write, &notes[static_cast<std::size_t>(i)]), CUDA_SUCCESS);
      done[static_cast<std::size_t>(i)] = event();
      EXPECT_EQ(d.cuEventRecord(done[static_cast<std::size_t>(i)], s), CUDA_SUCCESS);
    }
    for (CUstream s : streams) EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
    ASSERT_EQ(order.size(), static_cast<std::size_t>(steps));
    auto at = [&](int i) { return std::find(order.begin(), order.end(), i) - order.begin(); };
    for (auto [a, b] : before) ASSERT_LT(at(a), at(b)) << "seed " << seed << ": " << a << " before " << b;
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 10u);
}

TEST_F(FakeCuda, the_same_seed_gives_the_same_order) {
  may_race = true;
  auto bytes = [&](int seed) {
    start(seed);
    CUdeviceptr p = allocated(64), q = allocated(64);
    return filled_and_copied(d, p, q, stream(), stream(), nullptr);
  };
  for (int seed = 0; seed < 10; ++seed) EXPECT_EQ(bytes(seed), bytes(seed));
}

TEST_F(FakeCuda, memory_has_a_limit) {
  environment.set("FAKE_CUDA_MEMORY", "1000");
  start();
  CUdeviceptr p = allocated(600), q = 0;
  EXPECT_EQ(d.cuMemAlloc(&q, 401), CUDA_ERROR_OUT_OF_MEMORY);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(d.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, 400u);
  EXPECT_EQ(used(0), 600u);
  EXPECT_EQ(d.cuMemFree(p), CUDA_SUCCESS);
  EXPECT_EQ(used(0), 0u);
  EXPECT_EQ(d.cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
  q = allocated(1000);
}

TEST_F(FakeCuda, copies_that_leave_their_memory_are_refused) {
  start();
  CUdeviceptr p = allocated(64), q = allocated(64);
  CUstream s = stream();
  EXPECT_EQ(d.cuMemcpyAsync(p, q, 65, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemcpyAsync(p + 60, q, 5, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemsetD32Async(p, 1, 17, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemsetD32Async(p, 1, 16, s), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
}

TEST_F(FakeCuda, peers_copy_between_their_memories) {
  environment.set("FAKE_CUDA_GPUS", "2");
  start();
  CUcontext other = nullptr;
  CUdeviceptr p = allocated(16);
  CUstream s = stream();
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxEnablePeerAccess(other, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(other), CUDA_SUCCESS);
  CUdeviceptr q = allocated(16);
  EXPECT_EQ(used(1), 16u);
  std::uint32_t seen = 0;
  EXPECT_EQ(d.cuMemsetD32Async(p, 0x01020304, 4, s), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyPeerAsync(q, other, p, context, 16, s), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyPeerAsync(q, context, p, context, 16, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemcpyAsync(reinterpret_cast<std::uintptr_t>(&seen), q + 12, 4, s), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
  EXPECT_EQ(seen, 0x01020304u);
}

void add_one(const fake_cuda::Launch&, void** arguments) { ++*static_cast<int*>(*static_cast<void**>(arguments[0])); }
void store(const fake_cuda::Launch&, void** arguments) { *static_cast<int*>(*static_cast<void**>(arguments[0])) = *static_cast<int*>(arguments[1]); }

TEST_F(FakeCuda, kernels_are_found_by_name_and_keep_their_arguments) {
  add_kernel("store", {sizeof(void*), sizeof(int)}, store);
  for (int seed = 0; seed < 10; ++seed) {
    start(seed);
    CUstream s = stream();
    CUdeviceptr p = allocated(4);
    int value = 41, seen = 0;
    void* arguments[] = {&p, &value};
    EXPECT_EQ(launch(kernel("store"), s, arguments), CUDA_SUCCESS);
    value = 0;
    EXPECT_EQ(d.cuMemcpyAsync(reinterpret_cast<std::uintptr_t>(&seen), p, 4, s), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
    EXPECT_EQ(seen, 41);
  }
  CUlibrary library = nullptr;
  CUkernel k = nullptr;
  EXPECT_EQ(d.cuLibraryLoadData(&library, "code", nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLibraryGetKernel(&k, library, "restore"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(d.cuLibraryUnload(library), CUDA_SUCCESS);
}

TEST_F(FakeCuda, an_error_of_a_kernel_comes_late_and_stays) {
  add_kernel("add_one", {sizeof(void*)}, add_one);
  environment.set("FAKE_CUDA_FAIL", "cuLaunchKernelEx:2:700");
  start(3);
  CUstream s = stream();
  void* pinned = nullptr;
  ASSERT_EQ(d.cuMemHostAlloc(&pinned, 4, 0), CUDA_SUCCESS);
  int& count = *static_cast<int*>(pinned) = 0;
  void* arguments[] = {&pinned};
  CUkernel k = kernel("add_one");
  EXPECT_EQ(launch(k, s, arguments), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
  launch(k, s, arguments);
  launch(k, s, arguments);
  EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(count, 1);
  CUdeviceptr p = 0;
  EXPECT_EQ(d.cuMemAlloc(&p, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(d.cuStreamQuery(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  // Until all begins anew.
  environment.unset("FAKE_CUDA_FAIL");
  start();
  p = allocated(4);
}

TEST_F(FakeCuda, a_failure_that_does_not_break_the_context_passes) {
  environment.set("FAKE_CUDA_FAIL", "cuMemAlloc_v2:1:2");
  start();
  CUdeviceptr p = 0;
  EXPECT_EQ(d.cuMemAlloc(&p, 4), CUDA_ERROR_OUT_OF_MEMORY);
  p = allocated(4);
}

TEST_F(FakeCuda, functions_of_the_host_may_not_call_the_driver) {
  start();
  struct Asked {
    const CudaDriver* d;
    CUresult code = CUDA_SUCCESS;
  } asked{&d};
  CUstream s = stream();
  auto ask = [](void* data) {
    auto* a = static_cast<Asked*>(data);
    CUdeviceptr p = 0;
    a->code = a->d->cuMemAlloc(&p, 4);
  };
  EXPECT_EQ(d.cuLaunchHostFunc(s, ask, &asked), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
  EXPECT_EQ(asked.code, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(FakeCuda, a_value_is_waited_for) {
  start();
  CUdeviceptr flag = allocated(8);
  CUstream a = stream(), b = stream();
  EXPECT_EQ(d.cuStreamWriteValue64(a, flag, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(a), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamWaitValue64(b, flag, 3, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(b), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(d.cuStreamWriteValue64(a, flag, 4, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(b), CUDA_SUCCESS);
}

TEST_F(FakeCuda, a_value_of_another_thread_is_waited_for) {
  start();
  void* pinned = nullptr;
  ASSERT_EQ(d.cuMemHostAlloc(&pinned, 8, 0), CUDA_SUCCESS);
  auto* word = static_cast<std::uint64_t*>(pinned);
  __atomic_store_n(word, 0, __ATOMIC_RELEASE);
  CUstream s = stream();
  EXPECT_EQ(d.cuStreamWaitValue64(s, reinterpret_cast<std::uintptr_t>(pinned), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  std::jthread writer([&] { __atomic_store_n(word, 1, __ATOMIC_RELEASE); });
  EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
}

TEST_F(FakeCuda, a_wait_that_never_ends_is_an_error) {
  environment.set("FAKE_CUDA_PATIENCE", "10");
  start();
  CUdeviceptr flag = allocated(8);
  CUstream s = stream();
  EXPECT_EQ(d.cuMemsetD8Async(flag, 0, 8, s), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamWaitValue64(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST_F(FakeCuda, what_another_thread_is_in_the_middle_of_is_waited_for) {
  environment.set("FAKE_CUDA_PATIENCE", "10");
  environment.set("FAKE_CUDA_WORKS", "1");
  static std::atomic<int> at;
  auto slow = [](void*) {
    at = 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    at = 2;
  };
  for (int seed = 1; seed < 5; ++seed) {  // with some it is this thread that runs it
    start(seed);
    at = 0;
    CUstream s = stream();
    EXPECT_EQ(d.cuLaunchHostFunc(s, slow, nullptr), CUDA_SUCCESS);
    while (at == 0) std::this_thread::yield();
    EXPECT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
    EXPECT_EQ(at, 2);
  }
}

TEST_F(FakeCuda, events_and_kernels_keep_to_the_streams_of_their_context) {
  environment.set("FAKE_CUDA_GPUS", "2");
  start();
  CUcontext other = nullptr;
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  CUstream here = stream();
  CUevent e = event();
  ASSERT_EQ(d.cuCtxSetCurrent(other), CUDA_SUCCESS);
  CUstream there = stream();
  EXPECT_EQ(d.cuEventRecord(e, there), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuEventRecord(e, here), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamWaitEvent(there, e, 0), CUDA_SUCCESS);
  fake_cuda::Touched nothing{};
  function<fake_cuda::Declare>("fake_cuda_declare")("a kernel", &nothing, 0);
  EXPECT_EQ(d.cuLaunchHostFunc(here, [](void*) {}, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuLaunchHostFunc(here, [](void*) {}, nullptr), CUDA_SUCCESS) << "a function of the host goes anywhere";
  EXPECT_EQ(d.cuStreamSynchronize(there), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(here), CUDA_SUCCESS);
}

TEST_F(FakeCuda, what_is_not_there_says_so) {
  start();
  CUdeviceptr p = allocated(4);
  EXPECT_EQ(d.cuMemsetD8Async(p, 0, 4, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  int blocks = 0;
  EXPECT_EQ(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 32, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(FakeCuda, nothing_works_before_the_start) {
  reset();
  int count = 0;
  EXPECT_EQ(d.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  start();
  EXPECT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  CUdeviceptr p = 0;
  EXPECT_EQ(d.cuMemAlloc(&p, 4), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace belfry::test
