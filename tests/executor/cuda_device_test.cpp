// Several GPUs of which one fails, on the fake driver: what waits for it ends too.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include <belfry/executor/device/cuda/cuda_device_internal.h>
#include <belfry/executor/device/event.h>

#include "fake_gpus.h"
#include "says.h"

namespace belfry::test {
namespace {

class FailingGpus : public FakeGpus {
 protected:
  void SetUp() override {
    environment.set("FAKE_CUDA_GPUS", "3");
    environment.set("FAKE_CUDA_FAIL", "cuLaunchHostFunc:1:700");
    start();
    auto toolkit = std::make_shared<CudaToolkit>();
    for (int k = 0; k < 3; ++k) {
      devices.push_back(open_cuda_device(toolkit, {0, "gpu", k, -1}, std::chrono::milliseconds(50)));
      queues.push_back(devices.back()->queue(1));
    }
    gate.emplace(devices[1]->allocate_host(8));
    queues[1]->enter();
    ASSERT_EQ(d.cuStreamWaitValue64(static_cast<CUstream>(queues[1]->stream()), reinterpret_cast<CUdeviceptr>(gate->at(0)), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
    queues[1]->signal(told, 1);
    queues[1]->mark(0);
    queues[0]->wait(*queues[1], 0);
  }
  void expect_waiting_ends() {
    EXPECT_TRUE(says<DeviceError>([&] { queues[0]->finish(); }, {"gpu:0: its work has not ended 50 ms after gpu:1 failed"}));
    EXPECT_EQ(told.count(), 0);
    EXPECT_FALSE(queues[0]->works());
    EXPECT_TRUE(says<DeviceError>([&] { queues[0]->finish(); }, {"gpu:0: its work has not ended 50 ms after gpu:1 failed"}));
  }
  void expect_fault() {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(gate->at(0)), 1, __ATOMIC_RELEASE);
    EXPECT_TRUE(says<DeviceError>([&] { queues[1]->finish(); }, {"gpu:1", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"}));
  }

  Event told;
  std::optional<Arena> gate;  ///< before the fault
  std::vector<std::shared_ptr<Device>> devices;
  std::vector<std::unique_ptr<Queue>> queues;
};

TEST_F(FailingGpus, are_not_waited_for_by_others) {
  expect_fault();
  expect_waiting_ends();
}

TEST_F(FailingGpus, are_not_waited_for_by_others_that_wait_already) {
  std::jthread other([&] { expect_fault(); });
  expect_waiting_ends();
}

/// Fails where its context is made current.
TEST_F(FailingGpus, that_cannot_be_entered_are_not_waited_for_either) {
  queues[1]->enter();
  environment.set("FAKE_CUDA_FAIL", "cuCtxSetCurrent:1:700");
  ASSERT_EQ(d.cuInit(0), CUDA_SUCCESS);  // reads the settings anew
  EXPECT_TRUE(says<DeviceError>([&] { queues[1]->finish(); }, {"gpu:1: cuCtxSetCurrent gives"}));
  expect_waiting_ends();
}

TEST_F(FailingGpus, are_not_waited_for_behind_others) {
  queues[0]->mark(0);
  queues[2]->wait(*queues[0], 0);
  expect_fault();
  EXPECT_TRUE(says<DeviceError>([&] { queues[2]->finish(); }, {"gpu:2: its work has not ended 50 ms after gpu:1 failed"}));
  expect_waiting_ends();
}

TEST_F(FailingGpus, leave_alone_what_waits_for_none) {
  expect_fault();
  queues[2]->finish();
  EXPECT_TRUE(queues[2]->works());
}

/// The reset that comes with the last release may wait for what never ends.
TEST_F(FailingGpus, are_left_as_they_are_by_what_was_given_up) {
  expect_fault();
  expect_waiting_ends();
  const auto releases = [&] { return function<fake_cuda::Calls>("fake_cuda_calls")("cuDevicePrimaryCtxRelease"); };
  gate.reset(), queues.clear(), devices.clear();
  EXPECT_EQ(releases(), 1);  // gpu:2's, which waited for none and goes last
}

/// What is under way when it is given up goes on, and may find nobody to tell.
TEST_F(FailingGpus, are_given_up_by_what_tells_nobody_later) {
  Arena own = devices[0]->allocate_host(8);
  auto queue = devices[0]->queue(0);
  Event late;
  std::atomic<bool> ran = false;
  const CUstream stream = static_cast<CUstream>(queue->stream());
  ASSERT_EQ(d.cuStreamWaitValue64(stream, reinterpret_cast<CUdeviceptr>(own.at(0)), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  queue->signal(late, 1);
  ASSERT_EQ(d.cuLaunchHostFunc(stream, [](void* p) { *static_cast<std::atomic<bool>*>(p) = true; }, &ran), CUDA_SUCCESS);
  queue->wait(*queues[1], 0);
  expect_fault();
  EXPECT_TRUE(says<DeviceError>([&] { queue->finish(); }, {"gpu:0: its work has not ended 50 ms after gpu:1 failed"}));
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(own.at(0)), 1, __ATOMIC_RELEASE);
  while (!ran) ASSERT_EQ(d.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(late.count(), 0);
}

/// Rows that lie apart, by one copy, or by one each where the driver refuses that.
TEST_F(FakeGpus, copies_rows_though_the_driver_takes_no_such_steps) {
  for (const char* fails : {"", "cuMemcpy2DAsync_v2:1:1"}) {
    environment.set("FAKE_CUDA_FAIL", fails);
    start();
    auto device = open_cuda_device(std::make_shared<CudaToolkit>(), {0, "gpu", 0, -1});
    auto queue = device->queue(0);
    Arena from = device->allocate_host(40), to = device->allocate_host(40);
    for (int k = 0; k < 40; ++k) from.at(0)[k] = static_cast<std::byte>(k), to.at(0)[k] = std::byte{99};
    queue->copy_rows(to.at(1), 9, from.at(2), 7, 3, 4);
    queue->finish();
    for (int k = 0; k < 40; ++k) {
      const int row = (k - 1) / 9, column = (k - 1) % 9;
      EXPECT_EQ(static_cast<int>(to.at(0)[k]), k > 0 && row < 4 && column < 3 ? 2 + 7 * row + column : 99) << k << ", " << fails;
    }
    queue->copy_rows(to.at(1), 9, from.at(2), 7, 3, 4);
    queue->finish();
    const auto calls = function<fake_cuda::Calls>("fake_cuda_calls");
    EXPECT_EQ(calls("cuMemcpyAsync"), *fails ? 8 : 0) << fails;
    EXPECT_EQ(calls("cuMemcpy2DAsync_v2"), *fails ? 1 : 2) << "what was refused once is not asked for again, where it may end a capture";
  }
}

/// What failed first is told still where the work has not ended.
TEST_F(FakeGpus, say_again_what_they_failed_of) {
  environment.set("FAKE_CUDA_FAIL", "cuStreamSynchronize:1:999");
  start();
  auto device = open_cuda_device(std::make_shared<CudaToolkit>(), {0, "gpu", 0, -1});
  auto queue = device->queue(0);
  Arena gate = device->allocate_host(8);
  queue->enter();
  ASSERT_EQ(d.cuStreamWaitValue64(static_cast<CUstream>(queue->stream()), reinterpret_cast<CUdeviceptr>(gate.at(0)), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  EXPECT_TRUE(says<DeviceError>([&] { queue->finish(); }, {"gpu:0: cuStreamSynchronize gives", "(999)"}));
  EXPECT_TRUE(says<DeviceError>([&] { queue->finish(); }, {"gpu:0: its work has not ended, and it has failed before: cuStreamSynchronize gives", "(999)"}));
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(gate.at(0)), 1, __ATOMIC_RELEASE);
}

}  // namespace
}  // namespace belfry::test
