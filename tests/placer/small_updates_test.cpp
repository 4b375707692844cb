// Updates of small variables on GPUs: where they stand, and what forecasts say of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <belfry/belfry.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/small_updates.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/passes/passes.h>

#include "plans.h"

namespace belfry::test {
namespace {

/// Four layers whose biases are small and whose kernels are not, with slots, running averages and at will a gate.
std::shared_ptr<const Graph> layered(bool gated = false) {
  Builder b("layered");
  Value h = b.input("x", f32, {kBatch, 150});
  for (int k = 0; k < 4; ++k) h = tanh(nn::dense(h, {.units = 150, .name = fmt::format("layer_{}", k)}));
  b.minimize(mean(square(h)), Adam{.learning_rate = 0.1}, {.average_decay = 0.9, .skip_nonfinite = gated});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

Cluster gpus(int n, double launch = 4e-6) {
  Cluster c;
  c.cores = 2;
  for (int i = 0; i < n; ++i) {
    ClusterDevice d{{0, "gpu", i, -1}, "gpu:" + std::to_string(i)};
    d.flops = 1e13, d.bandwidth = 1e12, d.launch = launch;
    c.devices.push_back(d);
  }
  c.devices.push_back({cpu(0), "host", 1});
  return c;
}

std::vector<DeviceId> first_gpus(int n) { return parse_devices(n > 1 ? "gpu:0-" + std::to_string(n - 1) : "gpu:0"); }

/// Names of those on a device, in the order in which its main stream has them.
std::vector<std::string> in_order(const PlacedGraph& plan, bool small_alone) {
  const std::vector<bool> small = small_updates(plan);
  std::map<int, std::string> out;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (const PlanNode& n = plan.nodes[i]; n.scope == Scope::shared && !is_op(n, kInput) && (small[i] || !small_alone)) out.emplace(n.order, n.name);
  std::vector<std::string> names;
  for (const auto& [order, name] : out) names.push_back(name);
  return names;
}

TEST(SmallUpdates, are_those_of_biases_and_their_averages) {
  const PlacedGraph plan = place(layered(), to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), gpus(1), 8);
  const std::vector<std::string> names = in_order(plan, true);
  for (int k = 0; k < 4; ++k) {
    EXPECT_THAT(names, testing::Contains(fmt::format("adam/layer_{}/bias", k)));
    EXPECT_THAT(names, testing::Not(testing::Contains(fmt::format("adam/layer_{}/kernel", k))));  // 90,000 bytes
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (small_updates(plan)[i])
      for (ValueIndex v : plan.nodes[i].outputs) EXPECT_LE(local_type(plan.value(v), plan.share(-1)).bytes(), kSmallUpdate) << plan.nodes[i].name;
}

/// Optimisers, then what reads their outputs, so that those of one kind have nothing between them.
TEST(SmallUpdates, stand_behind_all_else_and_one_kind_behind_the_other) {
  for (bool gated : {false, true})
    for (int n : {1, 2}) {
      const Strategy s = n == 1 ? to_strategy(Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}) : to_strategy(Mirrored{.devices = first_gpus(2), .threads = 1});
      const PlacedGraph plan = place(layered(gated), s, gpus(n), 8);
      ASSERT_THAT(verify(plan), testing::IsEmpty());
      const std::vector<std::string> all = in_order(plan, false), small = in_order(plan, true);
      ASSERT_GE(small.size(), gated ? 16u : 8u);
      const auto first = std::find(all.begin(), all.end(), small[0]);
      std::vector<std::string> kinds;
      for (auto at = first; at != all.end(); ++at) {
        const auto node = std::find_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& p) { return p.name == *at; });
        if (!small_updates(plan)[static_cast<std::size_t>(node - plan.nodes.begin())]) {
          EXPECT_NE(node->role, Role::backward) << *at;
          continue;
        }
        if (kinds.empty() || kinds.back() != node->op) kinds.push_back(node->op);
      }
      if (gated) EXPECT_THAT(kinds, testing::ElementsAre("adam", "where", "moving_average", "where"));
      else EXPECT_THAT(kinds, testing::ElementsAre("adam", "add", "moving_average"));  // of the step's number
      for (auto at = all.begin(); at != first; ++at) EXPECT_THAT(small, testing::Not(testing::Contains(*at)));
    }
}

TEST(SmallUpdates, are_none_on_hosts_nor_in_ranges) {
  auto count = [](const PlacedGraph& plan) {
    const std::vector<bool> small = small_updates(plan);
    return std::count(small.begin(), small.end(), true);
  };
  EXPECT_EQ(count(place(layered(), to_strategy(Single{.device = cpu(0), .threads = 1}), gpus(2), 8)), 0);
  EXPECT_EQ(count(place(layered(), to_strategy(Towers{.devices = first_gpus(2), .variables = cpu(0), .threads = 1}), gpus(2), 8)), 0);
  const PlacedGraph sharded = place(layered(), to_strategy(Sharded{.devices = first_gpus(2), .threads = 1}), gpus(2), 8);
  const std::vector<bool> small = small_updates(sharded);
  for (std::size_t i = 0; i < small.size(); ++i) EXPECT_FALSE(small[i] && sharded.nodes[i].ranged) << sharded.nodes[i].name;
}

/// What a tower reads of an update in the same step comes before it.
TEST(SmallUpdates, that_towers_read_are_made_before_them) {
  Builder b("counted");
  Value seen = b.variable("seen", {}, {.init = "zeros", .trainable = false}), w = b.variable("w", {3});
  b.update(seen, seen + 1);
  b.minimize(mean(square(b.input("x", f32, {kBatch, 3}) * w * (seen + 1))), Sgd{.learning_rate = 0.1});
  const PlacedGraph plan = place(std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build())), to_strategy(Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}), gpus(1), 8);
  EXPECT_THAT(verify(plan), testing::IsEmpty());
  for (const PlanNode& n : plan.nodes)
    if (n.scope == Scope::tower) EXPECT_EQ(n.epoch, 0) << n.name;
}

TEST(SmallUpdates, cost_one_launch_of_each_kind_in_forecasts) {
  constexpr double kLaunch = 1e-3;
  const PlacedGraph plan = place(layered(), to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), gpus(1, kLaunch), 8);
  const std::vector<bool> small = small_updates(plan);
  std::map<std::string, int> updates, launches;
  for (const ForecastLaunch& l : forecast(plan).launches) {
    const PlanNode& n = plan.nodes[static_cast<std::size_t>(l.node)];
    if (!small[static_cast<std::size_t>(l.node)] || n.outputs.empty() || !n.def || !n.def->by_element) continue;
    ++updates[n.op];
    launches[n.op] += l.end - l.begin > kLaunch;
  }
  EXPECT_THAT(updates, testing::ElementsAre(testing::Pair("adam", 4), testing::Pair("moving_average", 4)));
  EXPECT_THAT(launches, testing::ElementsAre(testing::Pair("adam", 1), testing::Pair("moving_average", 1)));
}

}  // namespace
}  // namespace belfry::test
