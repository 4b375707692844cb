#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include <belfry/belfry.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/session/trace.h>
#include <belfry/frontends/session/compare.h>

#include "nets.h"
#include "ran_as_planned.h"

namespace belfry::test {
namespace {

Graph built(const std::string& name) {
  Builder b(name);
  net(name).build(b, f32);
  return std::move(b).build();
}

struct Compared {
  explicit Compared(const std::string& name)
      : graph(built(name)), one(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 4, .threads = 1}), two(graph, Mirrored{.devices = parse_devices("sim:0-3"), .towers = 4, .threads = 1}) {
    for (std::uint64_t k = 0; k < 3; ++k) data.push_back(feeds_for(graph, 10, k));
    for (const auto& d : data) feeds.emplace_back(d);
  }
  std::shared_ptr<const PlacedGraph> plan(Session& s) { return std::make_shared<const PlacedGraph>(s.plan(10)); }
  Graph graph;
  Session one, two;
  std::vector<std::map<std::string, HostTensor>> data;
  std::vector<Batch> feeds;
};

TEST(Compare, proves_equal_bits_of_every_value) {
  Compared c("batch_norm");
  Comparison r = compare(c.plan(c.one), c.plan(c.two), *standard_library(), c.feeds, c.one.state());
  EXPECT_FALSE(r.difference.has_value());
  EXPECT_EQ(r.first_hash, r.second_hash);
  EXPECT_EQ(r.steps, 3);
  EXPECT_GT(r.values, 300);
  EXPECT_TRUE(r.same_arithmetic);
}

TEST(Compare, names_the_first_node_that_one_changed_weight_reaches) {
  Compared c("accuracy");
  State changed = c.one.state();
  float& w = changed.at("in/w").data<float>()[5];
  w = std::bit_cast<float>(std::bit_cast<std::uint32_t>(w) + 1);
  Comparison r = compare(c.plan(c.one), c.plan(c.two), *standard_library(), c.feeds, c.one.state(), changed);
  ASSERT_TRUE(r.difference.has_value());
  EXPECT_EQ(r.difference->node, "matmul");
  EXPECT_GE(r.difference->tower, 0);
  EXPECT_EQ(r.difference->step, 0);
  EXPECT_GE(r.difference->ulps, 1u);
  EXPECT_NE(r.first_hash, r.second_hash);
}

TEST(Compare, ulps_are_counted_through_zero) {
  EXPECT_EQ(ulp_distance(1.0f, 1.0f), 0u);
  EXPECT_EQ(ulp_distance(1.0f, std::nextafter(1.0f, 2.0f)), 1u);
  EXPECT_EQ(ulp_distance(-1.0, std::nextafter(-1.0, 0.0)), 1u);
  EXPECT_EQ(ulp_distance(std::nextafter(0.0f, 1.0f), std::nextafter(0.0f, -1.0f)), 2u);
}

TEST(Describe, the_text_of_a_plan_says_what_tower_code_does) {
  Graph graph = built("decay");
  Session session(graph, Towers{.devices = parse_devices("cpu:0,cpu:1"), .variables = cpu(0)});
  std::string text = describe(session.plan(32), {.memory = true});
  EXPECT_THAT(text, testing::HasSubstr("global batch 32 = 16 + 16"));
  EXPECT_THAT(text, testing::HasSubstr("image.split0 = split(image)"));
  EXPECT_THAT(text, testing::HasSubstr("tower 0 on cpu:0, tower 1 on cpu:1; stream tower, phase 0"));
  EXPECT_THAT(text, testing::ContainsRegex("aggregate = aggregate sum.*\n.*cpu:0; stream main"));
  EXPECT_THAT(text, testing::ContainsRegex("momentum/fc/w = momentum.*\n.*cpu:0.*writes fc/w; writes momentum_m/fc/w"));
  EXPECT_THAT(text, testing::HasSubstr("live maximum"));
}

TEST(Trace, has_a_track_per_stream_and_every_step) {
  Graph graph = built("decay");
  Session session(graph, Towers{.devices = parse_devices("cpu:0,cpu:1")});
  session.set_trace(true);
  session.step(feeds_for(graph, 8));
  EXPECT_RAN_AS_PLANNED(session);
  std::string text = chrome_trace(session.last_program().bound(), session.trace());
  EXPECT_THAT(text, testing::HasSubstr("\"cpu:1 tower0\""));
  EXPECT_THAT(text, testing::HasSubstr("tower_1/matmul"));
}

}  // namespace
}  // namespace belfry::test
