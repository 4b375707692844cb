// NCCL behind its interface, on the fake driver: ranks meet, disagree, stay away, fail; nothing hangs.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include <belfry/executor/device/cuda/cuda_device_internal.h>
#include <belfry/executor/device/cuda/nccl_internal.h>
#include <belfry/graph/error.h>

#include "fake_gpus.h"
#include "files.h"
#include "no_threads.h"
#include "says.h"

#if __has_include(<nccl.h>)
namespace belfry::test {
namespace {

using What = Collective::What;
constexpr std::int64_t kCount = 5;

class Nccl : public FakeGpus {
 protected:
  Nccl() {
    std::filesystem::create_symlink(BELFRY_FAKE_CUDA, folder_ / "libnccl.so.2");  // the same library, not a copy with streams of its own
    environment.set("BELFRY_CUDA_PATH", folder_.path().string());
    environment.set("FAKE_CUDA_GPUS", "3");
    environment.set("FAKE_CUDA_WORKS", "1");
    environment.unset("FAKE_NCCL_STALL");
  }

  struct Rank {
    std::shared_ptr<Device> device;
    std::unique_ptr<Queue> queue;
    std::optional<Arena> arena;
    std::int32_t* data() { return reinterpret_cast<std::int32_t*>(arena->at(0)); }
  };

  void open(int ranks, std::chrono::milliseconds patience = std::chrono::milliseconds(300)) {
    communicator.reset();
    all.clear();
    start(++seed_);
    toolkit_ = std::make_shared<CudaToolkit>();
    std::vector<NcclRank> named;
    for (int r = 0; r < ranks; ++r) {
      const DeviceId id{0, "gpu", r, -1};
      Rank& rank = all.emplace_back();
      rank.device = open_cuda_device(toolkit_, id);
      rank.queue = rank.device->queue(0);
      rank.arena.emplace(rank.device->allocate(2 * kCount * 4, to_string(id)));
      for (std::int32_t i = 0; i < 2 * kCount; ++i) rank.data()[i] = 100 * r + i;
      named.push_back({rank.device.get(), to_string(id)});
    }
    communicator = open_nccl(toolkit_, named, patience);
  }
  /// Of a rank's first five numbers into its last five.
  Collective call(int rank, What what, std::int64_t count = kCount, DType dtype = i32, int root = 0) {
    std::byte* data = all[static_cast<std::size_t>(rank)].arena->at(0);
    return {what, dtype, count, root, data, data + 4 * kCount};
  }
  /// Each rank on a thread of its own; what it complains of.
  std::vector<std::string> run(const std::vector<std::vector<std::vector<Collective>>>& groups_of_ranks) {
    std::vector<std::string> out(groups_of_ranks.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < groups_of_ranks.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          all[r].device->enter();
          for (const auto& group : groups_of_ranks[r]) communicator->run(static_cast<int>(r), group, *all[r].queue);
          all[r].queue->finish();
          communicator->check();
        } catch (const DeviceError& e) {
          out[r] = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
    return out;
  }

  std::vector<Rank> all;
  std::shared_ptr<Communicator> communicator;

 private:
  Folder folder_;
  std::shared_ptr<CudaToolkit> toolkit_;
  int seed_ = 0;
};

TEST_F(Nccl, sums_and_carries_between_ranks) {
  for (int turn = 0; turn < 5; ++turn) {
    open(3);
    auto groups = [&](int r) -> std::vector<std::vector<Collective>> { return {{call(r, What::all_reduce)}, {call(r, What::reduce, 2, i32, 1), call(r, What::broadcast, 1, i32, 2)}}; };
    EXPECT_EQ(run({groups(0), groups(1), groups(2)}), std::vector<std::string>(3));
    for (int r = 0; r < 3; ++r)
      for (std::int32_t i = 0; i < kCount; ++i) EXPECT_EQ(all[static_cast<std::size_t>(r)].data()[kCount + i], i == 0 ? 200 : 300 + 3 * i) << r << " " << i;
  }
}

TEST_F(Nccl, that_nothing_can_watch_is_refused_with_a_way_out) {
  const NoThreads none;
  EXPECT_TRUE(says<DeviceError>([&] { open(2); }, {"NCCL: no thread can be started to watch it", "ulimit -u"}));
}

TEST_F(Nccl, ranks_that_differ_are_named_before_anything_is_launched) {
  const std::vector<std::tuple<std::vector<std::vector<Collective>>, std::vector<std::vector<Collective>>, const char*>> cases = {
      {{{{What::all_reduce, i32, 5}}}, {{{What::all_reduce, i32, 4}}}, "ranks differ: gpu:0 asks for all_reduce of 5 i32, gpu:1 for all_reduce of 4 i32"},
      {{{{What::all_reduce, i32, 5}}}, {{{What::all_reduce, f32, 5}}}, "gpu:1 for all_reduce of 5 f32"},
      {{{{What::reduce, i32, 5, 0}}, {{What::reduce, i32, 5, 1}}}, {{{What::reduce, i32, 5, 1}}, {{What::reduce, i32, 5, 0}}}, "gpu:0 asks for reduce of 5 i32 (rank 0), gpu:1 for reduce of 5 i32 (rank 1)"}};
  for (const auto& [a, b, words] : cases) {
    open(2);
    for (const std::string& told : run({a, b})) EXPECT_NE(told.find(words), told.npos) << told;
    EXPECT_TRUE(says<DeviceError>([&, &first = a[0]] { communicator->run(0, first, *all[0].queue); }, {"ranks differ", "its communicator was aborted"}));
  }
}

TEST_F(Nccl, a_rank_that_stays_away_is_named_when_time_is_up) {
  open(3);
  const auto told = run({{{call(0, What::all_reduce)}}, {}, {{call(2, What::all_reduce)}}});
  for (int r : {0, 2}) EXPECT_NE(told[static_cast<std::size_t>(r)].find("gpu:1 did not come to all_reduce of 5 i32 within 300 ms"), std::string::npos) << told[static_cast<std::size_t>(r)];
}

TEST_F(Nccl, what_never_ends_on_a_gpu_is_aborted) {
  environment.set("FAKE_NCCL_STALL", "1");
  open(2);
  const auto told = run({{{call(0, What::all_reduce)}}, {{call(1, What::all_reduce)}}});
  for (const std::string& t : told) EXPECT_NE(t.find("has not ended all_reduce of 5 i32 after 300 ms; its communicator was aborted"), t.npos) << t;
}

TEST_F(Nccl, an_error_of_one_rank_ends_all) {
  for (const char* failure : {"ncclAllReduce:2:5", "ncclGroupEnd:3:3", "ncclCommGetAsyncError:12:6"}) {
    environment.set("FAKE_CUDA_FAIL", failure);
    open(2, std::chrono::milliseconds(1000));
    auto groups = [&](int r) -> std::vector<std::vector<Collective>> { return {{call(r, What::all_reduce)}, {call(r, What::broadcast)}, {call(r, What::all_reduce)}}; };
    const auto told = run({groups(0), groups(1)});
    EXPECT_TRUE(!told[0].empty() && !told[1].empty()) << failure;
    EXPECT_NE((told[0] + told[1]).find(failure[4] == 'A' ? "invalid usage' (5)" : failure[4] == 'G' ? "internal error' (3)" : "a network error' (6)"), std::string::npos) << told[0] << told[1];
    EXPECT_TRUE(says<DeviceError>([&] { communicator->check(); }, {"NCCL: gpu:"}));
  }
}

/// Behind the barrier the others wait in their kernels.
TEST_F(Nccl, a_gpu_that_is_lost_behind_the_barrier_ends_all) {
  open(2, std::chrono::minutes(10));
  const int before = function<fake_cuda::Calls>("fake_cuda_calls")("cuCtxSetCurrent");
  environment.set("FAKE_CUDA_FAIL", "cuCtxSetCurrent:" + std::to_string(before + 3) + ":700");  // each rank's thread has entered once
  open(2, std::chrono::minutes(10));
  const auto told = run({{{call(0, What::all_reduce)}}, {{call(1, What::all_reduce)}}});
  EXPECT_NE((told[0] + told[1]).find("(700): as the fake driver was told; its communicator was aborted"), std::string::npos) << told[0] << told[1];
  EXPECT_TRUE(!told[0].empty() && !told[1].empty());
}

TEST_F(Nccl, whoever_waits_is_told_of_a_failure_elsewhere_and_goes_on_later) {
  open(2, std::chrono::minutes(10));
  std::thread elsewhere([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    communicator->cancel();
  });
  const auto told = run({{{call(0, What::all_reduce)}}});
  elsewhere.join();
  EXPECT_NE(told[0].find("gpu:0: another step failed before all ranks came to all_reduce"), std::string::npos) << told[0];
  // Those that come later, as many as there are, find nobody of those before.
  for (const std::string& late : run({{{call(0, What::all_reduce)}}, {{call(1, What::all_reduce)}}})) EXPECT_NE(late.find("another step failed"), std::string::npos) << late;
  communicator->renew();
  EXPECT_EQ(run({{{call(0, What::all_reduce)}}, {{call(1, What::all_reduce)}}}), std::vector<std::string>(2));
}

TEST_F(Nccl, says_why_it_does_not_start) {
  environment.set("FAKE_NCCL_VERSION", "22703");
  EXPECT_TRUE(says<DeviceError>([&] { open(2); }, {"wrong version: ", "2.27.3", "wanted is 2.28"}));
  environment.set("FAKE_NCCL_VERSION", "22809");
  environment.set("FAKE_CUDA_FAIL", "ncclCommInitRankConfig:2:2");
  EXPECT_TRUE(says<DeviceError>([&] { open(2); }, {"NCCL: ncclCommInitRankConfig gives 'unhandled system error' (2)"}));
}

}  // namespace
}  // namespace belfry::test
#endif
