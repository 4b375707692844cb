#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/cut/cut.h>
#include <belfry/placer/cut/tower_cut.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

/// One wide layer and four narrow ones, with momentum.
std::shared_ptr<const Graph> uneven(DType precision = f32) {
  Builder b("uneven");
  Value h = b.input("x", f32, {kBatch, 64});
  const std::vector<std::int64_t> widths = {64, 512, 64, 64, 64, 64};
  for (std::size_t k = 0; k + 1 < widths.size(); ++k) h = tanh(matmul(h, b.variable("w" + std::to_string(k), {widths[k], widths[k + 1]}, {.init = "normal", .init_value = 0.3})));
  b.minimize(mean(square(h)), Momentum{.learning_rate = 0.1});
  Graph out = std::move(b).build();
  out.precision = precision;
  return std::make_shared<const Graph>(run_passes(training_passes(), out));
}

/// Devices on which flops are all that costs, and links that cost next to nothing.
Cluster counting(int devices) {
  Cluster c = sim_cluster(devices);
  for (ClusterDevice& d : c.devices) d.flops = 1e9, d.bandwidth = 1e15;
  return c;
}

struct Cutting {
  std::shared_ptr<const Graph> graph = uneven();
  Cluster cluster;
  Layers layers;
  CostTable costs = {};
  TowerGraph towers() const { return expand(graph, {.towers = layers.towers, .batch = 32}); }
  PlacedGraph plan() const {
    PlacedGraph out = place(graph, to_strategy(layers), cluster, 32, {.costs = std::make_shared<const CostTable>(costs)});
    EXPECT_EQ(verify(out), std::vector<std::string>());
    return out;
  }
};

std::map<std::string, std::string> places(const PlacedGraph& plan) {
  std::map<std::string, std::string> out;
  for (const PlanNode& n : plan.nodes) out[n.name] = to_string(plan.cluster.devices[static_cast<std::size_t>(all_devices(plan, n).front())].id);
  return out;
}

std::string reason(const PlacedGraph& plan, const std::string& node) {
  for (const PlanNode& n : plan.nodes)
    if (n.name == node) return n.reason;
  return "";
}

TEST(LayersByCost, share_the_time_and_keep_variables_with_their_layer) {
  Cutting c{.cluster = counting(2), .layers = {.devices = sims(2), .threads = 1}};
  auto where = places(c.plan());
  // w0 and w1 have as many multiplications each, the other three together half of that.
  EXPECT_EQ(where["w0"], "sim:0");
  EXPECT_EQ(where["matmul"], "sim:0");
  for (const char* name : {"w1", "w2", "w3", "w4", "matmul_1", "matmul_4"}) EXPECT_EQ(where[name], "sim:1") << name;
  for (const PlanNode& n : c.plan().nodes)
    for (auto [u, variable] : n.donates) EXPECT_EQ(where[n.name], where[c.plan().maker(variable).name]) << n.name;
}

TEST(LayersByCost, over_unequal_links_are_no_worse_than_over_the_devices_that_are_near) {
  auto cut_over = [](int devices) {
    Cutting c{.cluster = counting(3), .layers = {.devices = sims(devices), .towers = 4, .order = PhaseOrder::gpipe, .threads = 1}};
    c.cluster.links = {{parse_devices("sim:0,sim:1,cpu:0"), "near", 1e12, 1e-9}, {parse_devices("sim:2"), "far", 1e4, 1e-3}, {parse_devices("cpu:0"), "far", 1e4, 1e-3}};
    return c.plan();
  };
  const PlacedGraph two = cut_over(2), three = cut_over(3);
  EXPECT_LE(forecast(three).seconds, forecast(two).seconds * (1 + 1e-9));
  EXPECT_THAT(reason(three, "matmul"), testing::AllOf(testing::HasSubstr("which no cut beats"), testing::HasSubstr("over 2 of 3 devices, between which moves are quickest")));
  EXPECT_THAT(reason(two, "matmul"), testing::Not(testing::HasSubstr("quickest")));
}

TEST(LayersByCost, are_the_best_cut_and_say_so) {
  Cutting c{.cluster = counting(3), .layers = {.devices = sims(3), .towers = 2, .order = PhaseOrder::one_f_one_b, .threads = 1}};
  PlacedGraph plan = c.plan();
  TowerCut t = cut_problem_of(c.towers(), c.cluster, {}, {.devices = sims(3), .rounds = 2, .in_flight = 2});
  auto where = places(plan);
  std::vector<int> device;
  for (const CutNode& n : t.problem.nodes) device.push_back(parse_device(where.at(n.name)).index);
  const Cut best = cut(t.problem);
  EXPECT_NEAR(value_of(t.problem, device), best.value, 1e-9 * best.value);
  EXPECT_TRUE(best.optimal());
  EXPECT_THAT(reason(plan, "matmul"), testing::AllOf(testing::StartsWith("cut by max-load: "), testing::HasSubstr(" a step on sim:0; max-load of "),
                                                        testing::HasSubstr(", which no cut beats; by variables ")));
}

TEST(LayersByCost, go_by_what_was_measured) {
  Cutting c{.cluster = sim_cluster(2), .layers = {.devices = sims(2), .threads = 1}};
  // One layer's kernel was slow, whatever its flops are: now all but it and what comes before is cheap.
  PlacedGraph plan = c.plan();
  c.costs.memmove = 1e15;
  for (const PlanNode& n : plan.nodes)
    if (n.def && n.scope == Scope::tower) {
      const bool slow = n.name == "matmul_1";
      Variant kernel;
      kernel.kernel = "reference";
      c.costs.kernels[cost_key(plan, n, kernel, plan.share(0), 1)] = {{cost_rows(plan, n, plan.share(0)), slow ? 1.0 : 1e-3, {1e3, 1e3}}};
    }
  auto where = places(c.plan());
  EXPECT_EQ(where["matmul"], where["matmul_1"]);
  EXPECT_NE(where["matmul_1"], where["matmul_2"]);
}

/// A cast of a variable stays with the layer that reads it, what takes the scale off a gradient with the gradient.
TEST(LayersByCost, in_half_precision_move_no_weights) {
  for (DType precision : {bf16, f16}) {
    Cutting c{.graph = uneven(precision), .cluster = counting(2), .layers = {.devices = sims(2), .threads = 1}};
    const PlacedGraph plan = c.plan();
    EXPECT_EQ(std::set<std::string>({places(plan)["w0"], places(plan)["w1"], places(plan)["w4"]}).size(), 2u);
    for (const PlanNode& n : plan.nodes) {
      if (!is_op(n, kCopy) || n.scope == Scope::tower) continue;  // those of rows
      EXPECT_LE(local_bytes(plan.value(n.outputs[0]), plan.share(-1)), 8) << n.name;
    }
  }
}

/// A cut knows but part of what its plan holds: it is asked again, with less.
TEST(LayersByCost, are_cut_again_where_their_plan_does_not_fit) {
  Cutting c{.cluster = sim_cluster(2), .layers = {}};
  Strategy s = to_strategy(Single{.device = sims(2)[0], .threads = 1});
  std::vector<std::int64_t> told;
  s.by_memory = true;
  s.assign = [&](const TowerGraph&, const Cluster& cluster, const CostTable&) {
    told.push_back(cluster.devices[0].memory);
    return Rules{{"**", {sims(2)[told.back() > 600'000 ? 0 : 1]}, "all"}};
  };
  c.cluster.devices[0].memory = 800'000;  // of some 1.3 MB
  const PlacedGraph plan = place(c.graph, s, c.cluster, 32, {});
  EXPECT_TRUE(over_memory(plan).empty());
  EXPECT_EQ(places(plan)["w1"], "sim:1");
  ASSERT_GE(told.size(), 2u);
  EXPECT_LT(told[1], told[0]);
  c.cluster.devices[1].memory = 800'000;  // none fits: the first is what is refused
  EXPECT_EQ(places(place(c.graph, s, c.cluster, 32, {}))["w1"], "sim:0");
}

TEST(LayersByCost, fit_the_memory_of_each_device_or_say_that_no_cut_does) {
  Cutting c{.cluster = counting(2), .layers = {.devices = sims(2), .threads = 1}};
  // w1 is 128 KiB, with its momentum and gradient thrice that: with the narrow layers more than there is.
  c.cluster.devices[1].memory = 500 << 10;
  PlacedGraph plan = c.plan();
  EXPECT_EQ(places(plan)["w1"], "sim:0");
  EXPECT_EQ(places(plan)["w4"], "sim:1");
  EXPECT_LE(device_bytes(plan)[1].total(), 500 << 10);
  for (ClusterDevice& d : c.cluster.devices) d.memory = 200 << 10;
  plan = place(c.graph, to_strategy(c.layers), c.cluster, 32, {});
  EXPECT_FALSE(over_memory(plan).empty());
  EXPECT_NE(reason(plan, "w1").find("memory left out"), std::string::npos) << reason(plan, "w1");
}

TEST(LayersByCost, keep_together_what_takes_longer_to_move_than_to_compute) {
  Cutting c{.cluster = counting(4), .layers = {.devices = sims(4), .threads = 1}};
  for (const DeviceId& d : sims(4)) c.cluster.links.push_back({{d}, "switch", 10, 0});
  c.cluster.links.push_back({{cpu(0)}, "switch", 10, 0});
  const PlacedGraph plan = c.plan();
  auto where = places(plan);
  EXPECT_EQ(where["matmul"], where["matmul_4"]);
  EXPECT_THAT(reason(plan, "matmul"), testing::HasSubstr(" of 4 devices, since no cut over more has a smaller max-load: " + where["matmul"] + " is busy for "));
}

TEST(LayersByCost, are_what_the_options_name) {
  auto made = [](const std::map<std::string, std::string>& options) {
    for (const StrategyDef& d : standard_strategies())
      if (d.name == "layers") return d.make(sims(2), options);
    throw InternalError("no layers");
  };
  auto graph = uneven();
  auto reasons = [&](const std::string& objective) { return reason(place(graph, made({{"objective", objective}, {"threads", "1"}}), counting(2), 32), "matmul"); };
  EXPECT_THAT(reasons("latency"), testing::StartsWith("cut by latency: "));
  EXPECT_THAT(reasons("variables"), testing::StartsWith("stage 0"));
  EXPECT_TRUE(says([&] { made({{"objective", "speed"}}); }, {"[layers] -O objective=speed", "one of max-load, latency, variables"}));
}

}  // namespace
}  // namespace belfry::test
