// Feeds that land on GPUs ahead of the step: which bytes of them, where they lie, what a step costs then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <belfry/frontends/draw/describe.h>
#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/landing.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/graph/structural.h>

#include "plans.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// GPUs with a link of their own to the host, 1e5 bytes a second behind 2 ms; figures that are easily reckoned with.
Cluster linked_gpus(int n) {
  Cluster c;
  for (int i = 0; i < n; ++i) {
    ClusterDevice d{{0, "gpu", i, -1}, "gpu:" + std::to_string(i)};
    d.flops = 1e9, d.bandwidth = 1e9, d.launch = 1e-6;
    c.devices.push_back(d);
    c.links.push_back({{d.id}, "host", 1e5, 2e-3});
  }
  ClusterDevice host{cpu(0), "host"};
  host.flops = host.bandwidth = 1e9;
  c.devices.push_back(host);
  return c;
}

std::vector<DeviceId> linked_ids(int n) { return parse_devices("gpu:0-" + std::to_string(n - 1)); }

/// x (batch, 3) and t (2, batch, 3) by rows, s (3) whole.
Graph rows_and_whole(bool trained) {
  Builder b("scaled");
  Value w = b.variable("w", {3}, {.init = "normal", .init_value = 0.3}), y = b.input("x", f32, {kBatch, 3}) * w * b.input("s", f32, {3});
  Value error = reduce_sum(square(b.input("t", f32, {2, kBatch, 3}) * w));
  if (trained) b.minimize(reduce_sum(square(y)) + error, Sgd{.learning_rate = 0.1f});
  else b.metric("error", reduce_sum(square(y)) + error);
  return run_passes(training_passes(), std::move(b).build());
}

PlacedGraph landing_plan(const Strategy& strategy, const Cluster& cluster, bool trained = true) {
  auto graph = std::make_shared<const Graph>(rows_and_whole(trained));
  PlacedGraph plan = place(graph, strategy, cluster, 7, {.fetches = fetches_of(*graph)});
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  return plan;
}

PlacedGraph landing_on(int devices, int towers, bool trained = true) { return landing_plan(to_strategy(Mirrored{.devices = linked_ids(devices), .towers = towers, .threads = 1}), linked_gpus(devices), trained); }

/// "x [0, 48) at 0"
std::vector<std::string> landed_texts(const PlacedGraph& plan, int device) {
  std::vector<std::string> out;
  const Landing landing = landings(plan)[static_cast<std::size_t>(device)];
  for (const LandedFeed& f : landing.feeds)
    out.push_back(plan.value(f.value).name + " [" + std::to_string(f.first) + ", " + std::to_string(f.past) + ") at " + std::to_string(f.at % kAlignment));
  std::sort(out.begin(), out.end());
  return out;
}

/// Rows behind an axis of no length have no bytes, as many as they are.
TEST(Landing, of_nothing_takes_no_room) {
  Builder b("empty");
  Value y = b.input("y", f32, {kBatch, 4});
  b.metric("z", reduce_sum(b.input("z", f32, {0, kBatch, 3})));
  b.metric("y", reduce_sum(y));
  auto graph = std::make_shared<const Graph>(std::move(b).build());
  const PlacedGraph plan = place(graph, to_strategy(Mirrored{.devices = linked_ids(2), .threads = 1}), linked_gpus(2), 8, {.fetches = fetches_of(*graph)});
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  for (int d : {0, 1}) EXPECT_THAT(landed_texts(plan, d), ElementsAre(d ? "y [64, 128) at 0" : "y [0, 64) at 0"));
}

TEST(Landing, has_the_rows_that_a_gpus_towers_read_and_no_others) {
  const PlacedGraph two = landing_on(2, 2);  // four rows of twelve bytes, and three
  EXPECT_THAT(landed_texts(two, 0), ElementsAre("s [0, 12) at 0", "t [0, 132) at 0", "x [0, 48) at 0"));
  EXPECT_THAT(landed_texts(two, 1), ElementsAre("s [0, 12) at 0", "t [48, 168) at 0", "x [48, 84) at 0")) << "of rows that lie apart, the hull";
  EXPECT_TRUE(landed_texts(two, 2).empty()) << "the host";
  const PlacedGraph four = landing_on(2, 4);  // 2 + 2, 2 + 1
  EXPECT_EQ(landed_texts(four, 0), landed_texts(two, 0));
  EXPECT_EQ(landed_texts(four, 1), landed_texts(two, 1));
}

TEST(Landing, is_for_gpus_whether_a_plan_trains_or_not) {
  auto none = [](const PlacedGraph& plan) {
    for (const Landing& l : landings(plan)) EXPECT_EQ(l.bytes, 0);
    for (const DeviceBytes& b : device_bytes(plan)) EXPECT_EQ(b.landing, 0);
  };
  none(landing_plan(to_strategy(Mirrored{.devices = sims(2), .towers = 2, .threads = 1}), sim_cluster(2)));
  none(landing_plan(to_strategy(Single{.device = cpu(0), .towers = 2, .threads = 1}), linked_gpus(1)));
  for (int d : {0, 1}) EXPECT_EQ(landed_texts(landing_on(2, 2, false), d), landed_texts(landing_on(2, 2), d));
}

TEST(Landing, lies_twice_behind_all_else_and_counts_as_memory) {
  PlacedGraph plan = landing_on(2, 2);
  const std::vector<DeviceBytes> bytes = device_bytes(plan);
  EXPECT_EQ(bytes[0].landing, 2 * (64 + 192 + 64));
  EXPECT_EQ(bytes[1].landing, 2 * (64 + 128 + 64));
  EXPECT_EQ(bytes[0].total(), bytes[0].state + bytes[0].region + bytes[0].kept + bytes[0].transient + bytes[0].landing);
  const BoundPlan bound(plan);
  for (std::size_t d = 0; d < 2; ++d) {
    EXPECT_EQ(bound.device_bytes[d] + bytes[d].landing, bytes[d].total());
    EXPECT_EQ(bound.arena_bytes[d], bytes[d].total());
  }
  EXPECT_THAT(describe_memory(plan), HasSubstr("feeds that land 640 B"));
  std::int64_t whole = 0;
  const std::vector<Landing> landed = landings(plan);
  for (const LandedFeed& f : landed[0].feeds) whole += 2 * aligned_bytes(local_type(plan.value(f.value), plan.share(-1)).bytes());
  EXPECT_EQ(bytes[2].landing, whole) << "from where the driver carries them";
  EXPECT_EQ(bound.device_bytes[2] + whole, bytes[2].total());
  EXPECT_THAT(describe_memory(plan), HasSubstr("feeds that leave "));
  plan.cluster.devices[0].memory = bytes[0].total();
  EXPECT_EQ(over_memory(plan), std::vector<std::string>());
  plan.cluster.devices[0].memory = bytes[0].total() - 1;
  EXPECT_EQ(over_memory(plan).size(), 1u);
}

/// Nothing of a step may lie where feeds land.
TEST(Landing, is_no_place_for_values) {
  PlacedGraph plan = landing_on(2, 2);
  for (PlanNode& n : plan.nodes)
    if (is_op(n, "mul") && n.scope == Scope::tower) {
      Slot slot = n.by_class[0].outputs[0];
      slot.offset = device_bytes(plan)[0].total() - device_bytes(plan)[0].state - 64;
      n.by_class[0].outputs[0] = slot;
      EXPECT_THAT(verify(plan), testing::Contains(HasSubstr("leaves the arena of gpu:0")));
      return;
    }
  FAIL() << "no node to spoil";
}

TEST(Landing, is_said_where_a_plan_is_shown) {
  EXPECT_THAT(describe(landing_on(2, 2)), testing::AllOf(HasSubstr("over links ahead of the step"), HasSubstr("link host to gpu:0: 192 B a step")));
}

double to_gpu(const Forecast& f, const std::string& to) {
  for (const LinkForecast& l : f.links)
    if (l.from == "host" && l.to == to) return l.bytes;
  return 0;
}

/// The step before has brought them; but this one has to bring those of the next, over the same link.
TEST(Landing, is_off_the_path_of_a_step_that_is_no_shorter_than_it) {
  const PlacedGraph plan = landing_on(2, 2), evaluated = landing_on(2, 2, false);
  const Forecast f = forecast(plan), e = forecast(evaluated);
  for (const auto& [of, steps] : {std::pair(&plan, &f), std::pair(&evaluated, &e)})
    for (const ForecastLaunch& l : steps->launches)
      if (is_op(of->nodes[static_cast<std::size_t>(l.node)], kSplit)) {
        EXPECT_EQ(l.moving, 0);
        EXPECT_GT(l.end, l.begin) << "a pass through the device's memory";
      }
  constexpr double kGradient = 12;  // of the other GPU, by way of the host
  EXPECT_EQ(to_gpu(f, "gpu:0"), 12 + 132 + 48 + kGradient);
  EXPECT_EQ(to_gpu(f, "gpu:1"), 12 + 120 + 36 + kGradient);
  EXPECT_NEAR(f.landed, 2e-3 + (12 + 132 + 48) / 1e5, 1e-9);
  EXPECT_GE(f.seconds, f.landed);
  EXPECT_NEAR(e.landed, f.landed, 1e-12);
  PlacedGraph slow = landing_plan(to_strategy(Single{.device = linked_ids(1)[0], .towers = 1, .threads = 1}), linked_gpus(1));
  slow.cluster.links[0].bandwidth = 10;
  const Forecast bound = forecast(slow);
  EXPECT_EQ(bound.seconds, bound.landed);
  EXPECT_NEAR(bound.landed, 2e-3 + (84 + 168 + 12) / 10.0, 1e-6);
  EXPECT_GT(waits_for_feeds(bound), 20);
  EXPECT_THAT(why_not_more(slow, bound), HasSubstr("most for 'the next feeds'"));
}

}  // namespace
}  // namespace belfry::test
