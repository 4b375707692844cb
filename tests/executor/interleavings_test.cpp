#include <gtest/gtest.h>

#include "interleavings.h"

namespace belfry::test {
namespace {

class Interleavings : public testing::TestWithParam<std::size_t> {};

TEST_P(Interleavings, at_random_are_free_of_races_and_give_the_interpreters_bits) {
  Counted c = Interleaver(interleaved_plans()[GetParam()]).interleave(100);
  EXPECT_EQ(c.races, 0);
  EXPECT_EQ(c.wrong, 0);
  EXPECT_GT(c.orders, 90u) << "the interleavings are hardly ever the same";
}

TEST_P(Interleavings, of_threads_that_are_late_at_random_give_the_same_bits) {
  Counted c = Interleaver(interleaved_plans()[GetParam()]).delay(20);
  EXPECT_EQ(c.runs, 20);
  EXPECT_EQ(c.wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Plans, Interleavings, testing::Range(std::size_t{0}, interleaved_plans().size()),
                         [](const auto& info) { return interleaved_plans()[info.param].net + "_" + interleaved_plans()[info.param].strategy; });

/// The plan says how many bytes, the program takes as many, and each device's part is that of its groups and frames.
TEST(Memory, that_is_planned_is_allocated_to_the_byte_in_every_plan) {
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list) {
      if (n.name == "two_heads") continue;
      auto graph = std::make_shared<const Graph>(training_graph(n));
      for (int devices : {1, 2, 3})
        for (const NamedStrategy& s : strategies(4, devices)) {
          Cluster cluster = sim_cluster(devices, devices != 3, 2);
          Program program(std::make_shared<const PlacedGraph>(place(graph, s.strategy, cluster, 7, {.fetches = fetches_of(*graph)})), reference_kernels());
          std::map<std::string, std::int64_t> planned;
          std::vector<DeviceBytes> bytes = device_bytes(program.plan());
          for (std::size_t d = 0; d < bytes.size(); ++d) planned[cluster.space(static_cast<int>(d))] += bytes[d].total();
          ASSERT_EQ(planned.size(), program.bound().spaces.size());
          for (std::size_t space = 0; space < program.bound().spaces.size(); ++space)
            EXPECT_EQ(program.allocated(static_cast<int>(space)), planned.at(program.bound().spaces[space])) << n.name << " " << s.name << " " << program.bound().spaces[space];
        }
    }
}

}  // namespace
}  // namespace belfry::test
