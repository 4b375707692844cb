// What plans make once: which nodes, where they stand, their bytes, what forecasts and files say of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include <belfry/belfry.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/diff.h>

#include "live_bytes.h"
#include "plans.h"

namespace belfry::test {
namespace {

enum class Kind { inference, updates, gradients };

/// Values of variables and constants alone, of a feed, of numbers drawn, and of all of these.
std::shared_ptr<const Graph> weighed(Kind kind = Kind::inference) {
  Builder b("weighed");
  Value x = b.input("x", f32, {kBatch, 8}), scale = b.input("scale", f32, {3}), small = b.variable("small", {8, 3}), flat = b.variable("flat", {24});
  auto named = [&](const char* name, auto make) {
    auto scope = b.scope(name);
    return make();
  };
  Value bent = named("bent", [&] { return square(flat); });
  Value turned = named("turned", [&] { return reshape(bent, {8, 3}); });
  Value sum = named("sum", [&] { return small + turned; });
  Value scaled = named("scaled", [&] { return sum * scale; });
  Value drawn = named("drawn", [&] { return dropout(small, b.seed(), b.step(), 0.3, "drop"); });
  b.metric("sums", matmul(x, sum));
  b.metric("scaled_sums", matmul(x, scaled));
  b.metric("drawn_sums", matmul(x, drawn));
  b.metric("itself", sum);
  if (kind == Kind::updates) b.update(flat, flat * 0.5);
  if (kind == Kind::gradients) b.minimize(mean(square(matmul(x, sum))), Sgd{.learning_rate = 0.1});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

PlacedGraph placed_for_once(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, const Cluster& cluster, bool updates = false) {
  return place(graph, strategy, cluster, 8, {.fetches = {graph->metrics.begin(), graph->metrics.end()}, .updates = updates});
}

std::set<std::string> made_once(const PlacedGraph& plan) {
  std::set<std::string> out;
  for (const PlanNode& n : plan.nodes)
    if (n.once) out.insert(n.name.substr(0, n.name.find('/')));
  return out;
}

Strategy on_one_sim() { return to_strategy(Single{.device = sims(1)[0], .threads = 1}); }

TEST(MadeOnce, is_what_reads_variables_and_constants_alone_where_no_step_changes_them) {
  EXPECT_THAT(made_once(placed_for_once(weighed(), on_one_sim(), sim_cluster(1))), testing::ElementsAre("bent", "sum", "turned"));
  EXPECT_THAT(made_once(placed_for_once(weighed(Kind::updates), on_one_sim(), sim_cluster(1), true)), testing::IsEmpty());
  EXPECT_THAT(made_once(placed_for_once(weighed(Kind::updates), on_one_sim(), sim_cluster(1), false)), testing::ElementsAre("bent", "sum", "turned"));
  // Who asks for gradients changes variables by them before the next step.
  auto graph = weighed(Kind::gradients);
  PlaceOptions options{.fetches = fetches_of(*graph), .updates = false};
  EXPECT_THAT(made_once(place(graph, on_one_sim(), sim_cluster(1), 8, options)), testing::IsEmpty());
}

/// On the device that has the variables, or on each; copies to others are made in each step.
TEST(MadeOnce, is_on_the_devices_that_have_what_it_reads) {
  for (const auto& [name, strategy] : strategies(4, 2)) {
    const PlacedGraph plan = placed_for_once(weighed(), strategy, sim_cluster(2));
    ASSERT_THAT(verify(plan), testing::IsEmpty()) << name;
    EXPECT_THAT(made_once(plan), testing::IsSupersetOf({"bent", "turned"})) << name;
    std::map<int, int> last;  // per device, of what is made once
    for (const PlanNode& n : plan.nodes)
      if (n.once) {
        EXPECT_TRUE(n.waits.empty()) << name << ": " << n.name;
        EXPECT_FALSE(moves_values(n)) << name << ": " << n.name;
        for (int d : n.holders) last[d] = std::max(last[d], n.order);
      }
    for (const PlanNode& n : plan.nodes) {
      for (const Wait& w : n.waits) EXPECT_FALSE(plan.maker(w.value).once && Instances(plan).copies(w.value).empty()) << name << ": " << n.name << " waits for " << plan.value(w.value).name;
      if (is_there(n) || n.scope == Scope::tower) continue;
      for (int d : n.holders) EXPECT_TRUE(!last.contains(d) || n.order > last[d]) << name << ": " << n.name;
    }
  }
}

/// Kept bytes meet no others of their device; what only others made once read may lie anywhere.
TEST(MadeOnce, keeps_its_bytes_where_steps_read_it) {
  for (int devices : {1, 2})
    for (const auto& [name, strategy] : strategies(4, devices)) {
      const PlacedGraph plan = placed_for_once(weighed(), strategy, sim_cluster(devices));
      const BoundPlan bound(plan);
      EXPECT_FALSE(bound.kept.empty()) << name;
      for (const BufferRef& k : bound.kept) {
        EXPECT_EQ(plan.value(k.tag.value).name.starts_with("bent"), false) << name;
        for (const auto& steps : bound.streams)
          for (const Step& step : steps)
            for (const auto& parts : step.writes)
              for (const Part& p : parts) EXPECT_TRUE(p.buffer.space != k.space || p.buffer.at >= k.at + k.bytes || k.at >= p.buffer.at + p.buffer.bytes) << name << ": " << plan.value(p.buffer.tag.value).name;
      }
    }
}

TEST(MadeOnce, takes_no_time_in_forecasts_and_its_bytes_all_the_time) {
  const PlacedGraph plan = placed_for_once(weighed(), on_one_sim(), sim_cluster(1));
  const Forecast f = forecast(plan);
  std::set<std::string> launched;
  for (const ForecastLaunch& l : f.launches) launched.insert(plan.nodes[static_cast<std::size_t>(l.node)].name);
  for (const PlanNode& n : plan.nodes) EXPECT_EQ(launched.contains(n.name), !n.once && n.scope != Scope::state) << n.name;
  EXPECT_EQ(unlike_live_bytes(plan, f), "");
  for (const auto& [name, strategy] : strategies(4, 2)) {
    const PlacedGraph other = placed_for_once(weighed(), strategy, sim_cluster(2));
    EXPECT_EQ(unlike_live_bytes(other, forecast(other)), "") << name;
  }
}

TEST(MadeOnce, stands_in_the_file_in_words_and_in_diffs) {
  const PlacedGraph plan = placed_for_once(weighed(), on_one_sim(), sim_cluster(1));
  const std::string text = write_plan(plan);
  EXPECT_THAT(text, testing::HasSubstr("\"once\": true"));
  const PlacedGraph again = read_plan(text, "plan.json", plan.graph->shared_ops());
  EXPECT_EQ(write_plan(again), text);
  EXPECT_EQ(made_once(again), made_once(plan));
  EXPECT_THAT(verify(again), testing::IsEmpty());
  EXPECT_THAT(describe(plan), testing::HasSubstr("stream main, once;"));
  PlacedGraph other = plan;
  for (PlanNode& n : other.nodes) n.once = false;
  EXPECT_THAT(diff_plans(plan, other).follows, testing::Contains(testing::HasSubstr("is made in each step")));
}

/// A device with room for the steps alone has them make all anew.
TEST(MadeOnce, gives_way_where_its_bytes_do_not_fit) {
  Builder b("wide");
  Value h = b.input("x", f32, {kBatch, 512});
  for (int k = 0; k < 4; ++k) h = tanh(matmul(h, tanh(b.variable("w" + std::to_string(k), {512, 512}))));
  b.metric("pairs", reduce_max(reshape(h, {kBatch, 512, 1}) * reshape(h, {kBatch, 1, 512}), {.axes = {1}}));  // when all others are done with
  auto graph = std::make_shared<const Graph>(run_passes(inference_passes(), std::move(b).build()));
  Cluster cluster = sim_cluster(1);
  const PlacedGraph roomy = placed_for_once(graph, on_one_sim(), cluster);
  EXPECT_EQ(made_once(roomy).size(), 4u);
  cluster.devices[0].memory = total_bytes(roomy)[0] - 1;
  const PlacedGraph tight = placed_for_once(graph, on_one_sim(), cluster);
  EXPECT_THAT(over_memory(tight), testing::IsEmpty());
  EXPECT_THAT(made_once(tight), testing::IsEmpty());
  EXPECT_THAT(verify(tight), testing::IsEmpty());
}

}  // namespace
}  // namespace belfry::test
