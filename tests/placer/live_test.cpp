// What forecasts say of memory, and plans that do not say where all lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/structural.h>

#include "live_bytes.h"
#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

TEST(Forecast, live_bytes_are_those_of_its_launches) {
  for (const std::string& name : names_of_nets()) {
    auto graph = std::make_shared<const Graph>(training_graph(net(name)));
    for (const NamedStrategy& s : strategies(3, 2)) {
      PlacedGraph plan = place(graph, s.strategy, sim_cluster(2), 7, {.fetches = fetches_of(*graph)});
      const Forecast f = forecast(plan);
      EXPECT_EQ(unlike_live_bytes(plan, f), "") << name << ", " << s.name;
      for (const DeviceForecast& d : f.devices) EXPECT_TRUE(d.peak.empty() || d.live > 0) << s.name;
    }
  }
}

/// Times need no places.
TEST(Forecast, says_nothing_of_what_is_live_where_a_plan_lacks_a_place) {
  PlacedGraph plan = place(std::make_shared<const Graph>(training_graph(net("decay"))), to_strategy(Single{.device = sims(1)[0], .threads = 1}), sim_cluster(1), 8);
  const Forecast whole = forecast(plan);
  for (PlanNode& n : plan.nodes)
    for (Variant& v : n.by_class)
      for (Slot& s : v.outputs) s = {};
  const Forecast f = forecast(plan);
  EXPECT_EQ(f.seconds, whole.seconds);
  for (const DeviceForecast& d : f.devices) EXPECT_EQ(d.live, 0);
}

/// Sums are written over what towers in turn have made, which lies in regions and frames.
TEST(Forecast, live_bytes_of_towers_in_turn_are_those_of_its_launches) {
  Builder b("widths");
  std::int64_t width = 27;
  Value h = b.input("x", f32, {kBatch, width});
  for (std::int64_t next : {21, 243, 27, 121, 24, 178}) {
    h = relu(matmul(h, b.variable(fmt::format("w{}", next), {width, next})) + b.variable(fmt::format("b{}", next), {next}));
    width = next;
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  const auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  for (int towers : {7, 16, 37})
    for (bool pairs : {false, true}) {
      Cluster cluster = sim_cluster(6);
      for (std::size_t d = 0; pairs && d < 6; ++d) cluster.devices[d].space = fmt::format("memory {}", d / 2);
      std::vector<NamedStrategy> all = strategies(towers, 6);
      all.push_back({"towers, variables on the host", to_strategy(Towers{.devices = sims(6), .variables = cpu(0), .towers = towers, .threads = 1})});
      for (const NamedStrategy& s : all) {
        const PlacedGraph plan = place(graph, s.strategy, cluster, 2 * towers - 5, {.fetches = fetches_of(*graph), .accumulate_all = true});
        EXPECT_EQ(unlike_live_bytes(plan, forecast(plan)), "") << s.name << ", " << towers << " towers" << (pairs ? ", pairs" : "");
      }
    }
}

TEST(BoundPlan, refuses_towers_without_rows_and_frames_outside_of_towers) {
  const PlacedGraph plan = place(std::make_shared<const Graph>(training_graph(net("decay"))), to_strategy(Towers{.devices = sims(2), .towers = 4, .threads = 1}), sim_cluster(2), 4);
  PlacedGraph few = plan, outside = plan;
  few.batch = 3;
  EXPECT_TRUE(says([&] { BoundPlan bound(few); }, {"unbound: tower 3 has no rows, but runs on sim:1"}));
  for (PlanNode& n : outside.nodes)
    for (Variant& v : n.by_group)
      if (n.scope == Scope::shared && !n.inputs.empty() && !v.outputs.empty()) v.outputs[0].region = Slot::kKept;
  EXPECT_TRUE(says([&] { BoundPlan bound(outside); }, {"is outside the towers, but lies in a tower's frame"}));
}

TEST(Moves, are_told_by_what_they_carry_and_by_the_numbers_of_devices) {
  const PlacedGraph plan = place(std::make_shared<const Graph>(training_graph(net("decay"))), to_strategy(Towers{.devices = sims(12), .towers = 12, .threads = 1}), sim_cluster(12), 25);
  std::vector<std::string> most, others;
  const std::vector<LinkLoad> links = link_bytes(plan);
  for (const LinkLoad& l : links) {
    const bool first = l.bytes == links[0].bytes;
    EXPECT_TRUE(!first || others.empty()) << l.from << " to " << l.to;
    if (l.from == "host") (first ? most : others).push_back(l.to);
  }
  EXPECT_THAT(most, testing::ElementsAre("sim:0"));  // 3 rows
  EXPECT_THAT(others, testing::ElementsAre("sim:1", "sim:2", "sim:3", "sim:4", "sim:5", "sim:6", "sim:7", "sim:8", "sim:9", "sim:10", "sim:11"));
}

TEST(Moves, of_what_a_tower_lacks_are_refused) {
  PlacedGraph plan = place(std::make_shared<const Graph>(training_graph(net("decay"))), to_strategy(Layers{.devices = sims(2), .towers = 2, .threads = 1}), sim_cluster(2), 4);
  const auto copy = std::find_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.op == kCopy && n.scope == Scope::tower; });
  ASSERT_NE(copy, plan.nodes.end());
  EXPECT_NO_THROW(link_bytes(plan));
  plan.nodes[static_cast<std::size_t>(plan.value(copy->inputs[0]).maker)].vector = static_cast<int>(plan.vectors.size());
  plan.vectors.push_back({-1, -1});
  EXPECT_TRUE(says([&] { link_bytes(plan); }, {"unbound: ", "which tower 0 lacks"}));
}

}  // namespace
}  // namespace belfry::test
