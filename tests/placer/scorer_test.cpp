#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <malloc.h>

#include <optional>
#include <random>

#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/placer/assign.h>
#include <belfry/placer/scorer.h>

#include "plans.h"
#include "random_net.h"

namespace belfry::test {
namespace {

/// Either all of a score, or the error.
struct Told {
  Score score;
  std::string error;
};

template <class F>
Told told(F f) {
  try {
    return {f(), ""};
  } catch (const UserError& e) {
    return {{}, e.what()};
  }
}

/// By way of the finished plan.
Score finished(const std::shared_ptr<const Graph>& graph, const Cluster& cluster, const Placement& p, const CostTable& costs, const PlaceOptions& options) {
  const PlacedGraph plan = place(graph, p, cluster, options);
  Score out{forecast(plan, costs).seconds, {}, over_memory(plan)};
  for (const DeviceBytes& b : device_bytes(plan)) out.peak.push_back(b.total());
  return out;
}

/// Two GPUs and two sim devices with a host, links where `linked`; two spaces that no link joins, little memory on a device.
Cluster machine(std::mt19937_64& rng, bool linked) {
  Cluster c = sim_cluster(2);
  c.cores = 3;
  std::vector<DeviceId> all = sims(2);
  for (int i = 0; i < 2; ++i) {
    ClusterDevice d{{0, "gpu", i, -1}, "gpu:" + std::to_string(i), 2};
    d.flops = 1e9, d.bandwidth = 1e9 + 1e8 * i, d.launch = 1e-6;
    c.devices.push_back(d);
    all.push_back(d.id);
  }
  if (linked) c.links = {{all, "switch", 1e6, 1e-3}, {{cpu(0)}, "switch", 2e6, 1e-4}};
  else c.unlinked = {{"sim:0", "gpu:1"}};
  c.devices[rng() % 5].memory = 4096;
  return c;
}

Placement drawn(const Graph& g, const Cluster& c, std::mt19937_64& rng) {
  Placement p{static_cast<int>(1 + rng() % 3), 6, Combine::global_mean, static_cast<int>(1 + rng() % 2), {}, static_cast<PhaseOrder>(rng() % 3)};
  auto device = [&] { return c.devices[rng() % c.devices.size()].id; };
  const bool scattered = rng() % 2;
  if (rng() % 3 == 0) p.rules.push_back({"tower_" + std::to_string(rng() % 3) + "/**", {device()}, "a tower apart"});
  if (rng() % 4 == 0) p.rules.push_back({"tower_*/*", {device(), device()}, "dealt"});
  for (NodeId id = 0; id < g.size(); ++id)
    if (scattered || rng() % 8 == 0) p.rules.push_back({g.node(id).name, {device()}, "drawn"});
  if (rng() % 16) p.rules.push_back({"**", {device()}, "the rest"});
  return p;
}

/// Some ops have no kernel on a GPU, some want scratch.
KernelChoice some_kernel(const KernelQuery& q) {
  if (q.device_kind == "gpu" && (q.node.op == "mul" || q.node.op == "reduce_sum")) return {"reference", 0, true};
  return {"of_" + q.node.op + q.device_kind, q.outputs.empty() ? 0 : q.outputs[0].bytes() / 2, q.node.op != "add"};
}

/// Two variables that are updated where they lie or stored anew, as they are placed, before two that take the bytes of others: what
/// lowering puts in has other numbers in each placement.
Graph shifted() {
  Builder b("shifted");
  Value x = b.input("x", f32, {kBatch, 4});
  auto made = [&](const char* name, std::int64_t n) { return b.variable(name, {n}, {.init = "normal", .init_value = 0.3}); };
  Value p = made("p", 4), q = made("q", 4), r = made("r", 4), small = made("small", 4), large = made("large", 1 << 16), s = made("s", 4), l = made("l", 1 << 16);
  b.update(p, p * 2.0f);
  b.update(q, q + p);
  b.update(r, r - p);
  b.update(s, small);
  b.update(l, large);
  b.metric("y", reduce_sum(x * p));
  return std::move(b).build();
}

TEST(Scorer, its_figures_and_errors_are_those_of_the_finished_plan) {
  int scored = 0, over = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 17; ++seed) {
    std::mt19937_64 rng(seed);
    auto graph = std::make_shared<const Graph>(run_passes(training_passes(), seed < 16 ? grown(random_recipe(seed), f32) : shifted()));
    Cluster cluster = machine(rng, seed % 2);
    if (seed == 16) cluster = sim_cluster(3);
    const PlaceOptions options{.fetches = fetches_of(*graph), .kernels = seed % 4 < 2 ? some_kernel : KernelChooser()};
    CostTable costs;
    costs.dispatch = 1e-7, costs.handoff = 3e-6, costs.wake = 2e-5;
    if (seed % 4 < 2) costs.kernels["of_matmulcpu x threads 1"] = {{1, 1e-6, {10, 20}}};
    Scorer scorer(graph, cluster, costs, options);
    for (int k = 0; k < (seed < 16 ? 12 : 60); ++k) {
      Placement p = drawn(*graph, cluster, rng);
      if (seed == 16) p.towers = p.threads = 1;  // all of one tower graph, so that what is kept of one placement is there for the next
      const Told want = told([&] { return finished(graph, cluster, p, costs, options); }), got = told([&] { return scorer(p); }), alone = told([&] { return Score{scorer.seconds(p), {}, {}}; });
      const std::string where = "seed " + std::to_string(seed) + ", placement " + std::to_string(k);
      ASSERT_EQ(got.error, want.error) << where;
      ASSERT_EQ(got.score.step_seconds, want.score.step_seconds) << where;
      ASSERT_EQ(alone.score.step_seconds, want.score.step_seconds) << where;
      ASSERT_EQ(alone.error, want.error) << where;
      ASSERT_EQ(got.score.peak, want.score.peak) << where;
      ASSERT_EQ(got.score.over, want.score.over) << where;
      ++(!want.error.empty() ? refused : !want.score.over.empty() ? over : scored);
    }
  }
  EXPECT_GT(scored, 20);
  EXPECT_GT(over, 10);
  EXPECT_GT(refused, 10);
}

TEST(Scorer, sums_in_ranges_and_whole_ones_in_turn_cost_what_they_do_alone) {
  Builder b("wide");
  Value h = matmul(b.input("x", f32, {kBatch, 64}), b.variable("w", {64, 64}, {.init = "normal", .init_value = 0.1}));
  b.minimize(reduce_sum(square(h)), Sgd{.learning_rate = 0.1f});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  const Cluster cluster = sim_cluster(2);
  std::vector<Placement> both;
  CostTable costs;
  for (const Strategy& s : {to_strategy(Mirrored{.devices = sims(2), .threads = 1}), to_strategy(Sharded{.devices = sims(2), .threads = 1})}) {
    const PlacedGraph plan = place(graph, s, cluster, 4);
    both.push_back(placement_of(plan));
    for (const PlanNode& n : plan.nodes)  // a sum in ranges is said to have been measured as slower
      if (n.op == kAggregate) costs.kernels[cost_key(plan, n, n.by_group[0], plan.share(-1), 2)] = {{cost_rows(plan, n, plan.share(-1)), n.ranged ? 3e-3 : 1e-3, {10, 20}}};
  }
  std::vector<double> alone;
  for (const Placement& p : both) alone.push_back(forecast(place(graph, p, cluster), costs).seconds);
  ASSERT_GT(alone[1], alone[0] + 1e-3);
  Scorer scorer(graph, cluster, costs);
  for (int turn = 0; turn < 4; ++turn) EXPECT_EQ(scorer(both[static_cast<std::size_t>(turn % 2)]).step_seconds, alone[static_cast<std::size_t>(turn % 2)]) << "turn " << turn;
}

TEST(Scorer, a_rule_that_decides_nothing_is_refused_where_it_must) {
  auto graph = std::make_shared<const Graph>(training_graph(net("conv")));
  const Placement p{1, 4, Combine::global_mean, 1, {{"nobody", {sims(1)[0]}, ""}, {"**", {sims(1)[0]}, ""}}};
  Scorer scorer(graph, sim_cluster(1));
  EXPECT_GT(scorer(p).step_seconds, 0);
  EXPECT_THAT(told([&] { return scorer(p, 1); }).error, testing::HasSubstr("the rule \"nobody\" matches no node"));
  EXPECT_EQ(scorer(p).step_seconds, forecast(graph, sim_cluster(1), p).step_seconds);
}

/// y = x w, its user asking for gpu:0 or not; GPUs have no kernel for the product.
std::string placed_on_gpu(bool asks) {
  Builder b("asked");
  Value x = b.input("x", f32, {kBatch, 3});
  {
    auto on = asks ? std::optional(b.device("gpu:0")) : std::nullopt;
    x = x * b.variable("w", {3}, {.init = "normal", .init_value = 0.3});
  }
  b.metric("y", reduce_sum(x));
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  std::mt19937_64 rng(0);
  Placement p{1, 4, Combine::global_mean, 1, rules_of_requests(*graph)};
  p.rules.push_back({"**", {{0, "gpu", 0, -1}}, "requested"});
  return told([&] {
           const PlacedGraph plan = place(graph, p, machine(rng, true), {.fetches = fetches_of(*graph), .kernels = some_kernel});
           for (const PlanNode& n : plan.nodes)
             EXPECT_TRUE(n.op != "mul" || n.reason == "GPUs have no kernel for it") << n.reason;
           return Score{};
         }).error;
}

TEST(Requests, are_what_the_graph_asks_and_not_what_a_reason_says) {
  EXPECT_THAT(placed_on_gpu(true), testing::HasSubstr("is requested on gpu:0, but GPUs have no kernel for it"));
  EXPECT_EQ(placed_on_gpu(false), "");
}

TEST(Scorer, keeps_the_last_few_tower_graphs_alone) {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  const Strategy two = to_strategy(Towers{.devices = sims(2), .towers = 2, .threads = 1});
  Scorer scorer(graph, sim_cluster(2));
  auto score = [&](std::int64_t batch) {
    Placement p = place(graph, two, sim_cluster(2), 8).placement;
    p.batch = batch;
    return scorer(p).step_seconds;
  };
  auto in_use = [] { return static_cast<double>(mallinfo2().uordblks); };
  const double none = in_use(), first = score(2);
  for (std::int64_t batch = 3; batch < 32; ++batch) score(batch);
  const double some = in_use();
  for (std::int64_t batch = 32; batch < 152; ++batch) score(batch);
  EXPECT_LE(in_use() - some, 0.5 * (some - none));
  EXPECT_EQ(score(2), first);
}

}  // namespace
}  // namespace belfry::test
