// What is watched of kernels that run on the host: each fault is found, and what is right is not objected to.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "host_gpu.h"

namespace belfry::test {
namespace {

/// Launches `body` as two blocks of 64 threads; `x` are 256 numbers, 0 to 255, and `to` as many zeros.
struct Launched {
  explicit Launched(const std::string& body) {
    host->every = true;
    const std::string text = fmt::format("struct Args {{ float* x; float* to; }};\nKERNEL void tried(const Args a) {{\n  const int t = threadIdx.x, i = blockIdx.x * 64 + t;\n  __shared__ float shared[64];\n{}\n}}\n", body);
    for (int k = 0; k < 256; ++k) x.push_back(static_cast<float>(k));
    const std::vector<std::uint64_t> words = {std::bit_cast<std::uint64_t>(x.data()), std::bit_cast<std::uint64_t>(to.data())};
    host->function(text, "tried", 2)->launch({2, 64}, words, nullptr);
  }
  std::shared_ptr<HostGpu> host = std::make_shared<HostGpu>();
  std::vector<float> x, to = std::vector<float>(256);
};

TEST(HostGpu, objects_to_no_order_that_kernels_may_count_on) {
  Launched l(R"(
    shared[t] = a.x[i];
    __syncthreads();
    float sum = shared[63 - t];
    __syncthreads();
    shared[t] = sum;
    __syncwarp();
    sum += shared[t / 32 * 32 + (t + 1) % 32];
    __syncwarp();
    copy_one(shared + t, a.x + i, t < 60);
    commit_copies();
    await_copies_but<0>();
    __syncthreads();
    sum += shared[(t + 1) % 64];
    const float first = a.x[i / 32 * 32] + 0 * __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    a.x[i] = sum + 0 * first;)");
  EXPECT_EQ(l.x[0], 63 + 62 + 1);
  EXPECT_EQ(l.x[63], 0 + 31 + 0);
}

TEST(HostGpu, finds_what_has_no_order) {
  const std::string apart = "no wait lies between";
  EXPECT_NONFATAL_FAILURE(Launched("shared[t] = a.x[i]; a.to[i] = shared[63 - t]; __syncthreads();"), apart);
  EXPECT_NONFATAL_FAILURE(Launched("shared[t] = a.x[i]; __syncwarp(); a.to[i] = shared[63 - t]; __syncthreads();"), apart);
  EXPECT_NONFATAL_FAILURE(Launched("shared[t] = a.x[i]; __syncthreads(); a.to[i] = shared[63 - t]; shared[t] = 0;"), apart);
  EXPECT_NONFATAL_FAILURE(Launched("shared[t / 2] = a.x[i]; __syncthreads(); a.to[i] = shared[t / 2];"), "writes what is being written");
  EXPECT_NONFATAL_FAILURE(Launched("shared[t] = a.x[i]; a.to[i] = shared[t ^ 1] + 0 * __shfl_sync(0xFFFFFFFFu, shared[t], 0);"), apart);
  // Of other blocks too, and of blocks whose threads never wait.
  EXPECT_NONFATAL_FAILURE(Launched("a.to[i] = a.x[i]; __syncthreads(); a.x[i] = a.to[127 - i];"), "global memory");
  EXPECT_NONFATAL_FAILURE(Launched("a.x[127 - i] = a.x[i];"), "global memory");
  EXPECT_NONFATAL_FAILURE(Launched("a.to[t] = a.x[t];"), "block");
}

TEST(HostGpu, finds_copies_that_are_not_awaited) {
  const std::string copied = "copy_one(shared + t, a.x + i, true); commit_copies(); ";
  EXPECT_NONFATAL_FAILURE(Launched(copied + "__syncthreads(); a.to[i] = shared[t];"), "reads what is being written");
  EXPECT_NONFATAL_FAILURE(Launched(copied + "commit_copies(); await_copies_but<2>(); a.to[i] = shared[t]; __syncthreads();"), "reads what is being written");
  EXPECT_NONFATAL_FAILURE(Launched(copied + "await_copies_but<0>(); a.to[i] = shared[63 - t]; __syncthreads();"), "no wait lies between");
  EXPECT_NONFATAL_FAILURE(Launched("shared[t] = a.x[i]; __syncthreads(); a.to[i] = shared[63 - t]; " + copied + "await_copies();"), "no wait lies between");
  EXPECT_NONFATAL_FAILURE(Launched("copy_one(shared + t, a.x + i, true); await_copies_but<0>(); a.to[i] = shared[t]; __syncthreads();"), "reads what is being written");
}

TEST(HostGpu, shared_memory_that_was_not_written_holds_no_number) {
  Launched l("if (blockIdx.x == 0 || t < 32) shared[t] = a.x[i]; __syncthreads(); a.to[i] = shared[t];");
  EXPECT_EQ(l.to[70], 70);
  EXPECT_TRUE(std::isnan(l.to[100]));
}

TEST(HostGpu, tables_of_addresses_are_constants) {
  Launched l("static const float one = 1, two = 2; static const float* const table[] = {&one, &two}; const float* const* at = table; shared[t] = *at[t % 2]; __syncthreads(); a.to[i] = shared[t];");
  EXPECT_EQ(l.to[6], 1);
  EXPECT_EQ(l.to[7], 2);
}

#ifdef __SANITIZE_ADDRESS__
TEST(HostGpu, finds_reads_past_the_end) {
  EXPECT_NONFATAL_FAILURE(Launched("if (t < 0) __syncthreads(); a.to[i] = a.x[i + 129];"), "what is nobody's");
}
#endif

TEST(HostGpu, finds_threads_that_wait_in_different_places) {
  EXPECT_NONFATAL_FAILURE(Launched("if (t < 32)\n__syncthreads();\nelse\n__syncthreads();\na.to[i] = 1;"), "different places");
}

}  // namespace
}  // namespace belfry::test
