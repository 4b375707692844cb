// What becomes of a run where the process gets no more memory or threads.
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include <belfry/belfry.h>

#include "no_threads.h"
#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

/// While it lives the process may have so many bytes of addresses more.
class Limit {
 public:
  explicit Limit(std::size_t more) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit now{pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + more, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_AS, &now), 0);
  }
  ~Limit() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

class Limits : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer ends the process where it gets no memory";
#endif
  }
};

/// The update is done when a result is read: the next step goes on from there.
TEST_F(Limits, of_memory_that_a_result_lacks_leave_the_step_complete) {
  Builder b("large");
  Value w = b.variable("w", {std::int64_t{1} << 24}, {.init = "ones"});  // 64 MiB
  b.metric("w", w);
  b.minimize(reduce_sum(w * b.input("x", f32, {})), Sgd{.learning_rate = 0.5f});
  Session session(std::move(b).build(), Single{.device = cpu(0), .threads = 1});
  const HostTensor one = HostTensor::scalar(1.0f);
  auto first = [&] { return session.variable("w").values<float>()[0]; };
  session.step({{"x", one}}, {"w"});
  EXPECT_EQ(first(), 0.5f);
  {
    Limit limit(std::size_t{32} << 20);
    EXPECT_TRUE(says<UserError>([&] { session.step({{"x", one}}, {"w"}); }, {"the host has no memory left", "while running 'fetch/w' on cpu:0"}));
  }
  EXPECT_EQ(session.state_after(), StateAfter::complete);
  EXPECT_EQ(first(), 0.0f);
  session.step({{"x", one}}, {"w"});
  EXPECT_EQ(first(), -0.5f);
}

TEST_F(Limits, of_threads_are_told_with_a_way_out) {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  Cluster cluster = sim_cluster(4);
  cluster.cores = 4;
  auto plan = std::make_shared<const PlacedGraph>(place(graph, to_strategy(Mirrored{.devices = sims(4), .threads = 1}), cluster, 8));
  Program program(plan, reference_kernels());
  ASSERT_EQ(program.threads().size(), 4u);
  for (std::size_t some : {0, 2}) {
    const ThreadStacks large(std::size_t{1} << 30);  // which no thread that has ended leaves
    Limit limit((some << 30) + (std::size_t{512} << 20));  // a thread takes addresses for what it allocates, too
    EXPECT_TRUE(says<UserError>([&] { Runner runner(program); }, {"of the 4 host threads that the plan wants this process gets " + std::to_string(some), "ulimit -u", "fewer towers"}));
  }
  Runner runner(program);
  const Tensors feeds = feeds_for(*graph, 8);
  EXPECT_FALSE(runner.run(views(feeds)).error);
}

}  // namespace
}  // namespace belfry::test
