// Parts that towers in turn add as they make them: the tree's sums by a stack of few buffers, the same bits, memory that does not grow with the towers.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>

#include <belfry/graph/plan/forecast.h>
#include <belfry/executor/run.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>

#include "plans.h"

namespace belfry::test {
namespace {

TEST(Accumulated, leaves_the_pieces_of_the_tree_and_no_sum_is_written_over_before_it_is_read) {
  std::minstd_rand random(5);
  for (int round = 0; round < 400; ++round) {
    const int towers = 1 + static_cast<int>(random() % 40), devices = 1 + static_cast<int>(random() % 3), absent = static_cast<int>(random() % 3);
    std::vector<int> owners;
    const bool dealt = random() % 2;
    for (int t = 0; t < towers; ++t) owners.push_back(t >= towers - absent && t ? -1 : dealt ? t * devices / towers : static_cast<int>(random() % static_cast<unsigned>(devices)));
    const std::vector<Accumulated> all = accumulated(owners, towers);
    std::vector<std::vector<int>> stacks(static_cast<std::size_t>(devices), std::vector<int>(owners.size(), -1));  // per buffer, whose sum it holds
    std::vector<std::tuple<int, int, int>> left, want;
    for (int t = 0; t < towers; ++t) {
      const int d = owners[static_cast<std::size_t>(t)];
      if (d < 0) continue;
      const Accumulated& mine = all[static_cast<std::size_t>(t)];
      std::vector<int>& stack = stacks[static_cast<std::size_t>(d)];
      int low = mine.low;
      for (int r : mine.reads) {  // side by side, up to this tower
        const Accumulated& read = all[static_cast<std::size_t>(r)];
        EXPECT_EQ(stack[static_cast<std::size_t>(read.at)], r);
        EXPECT_EQ(read.low, low);
        EXPECT_FALSE(read.stays);
        low = read.high;
        stack[static_cast<std::size_t>(read.at)] = -1;
      }
      EXPECT_EQ(low, t);
      EXPECT_EQ(stack[static_cast<std::size_t>(mine.at)], -1) << "tower " << t << " writes over a sum that is still to be read";
      stack[static_cast<std::size_t>(mine.at)] = t;
      if (mine.stays) left.emplace_back(mine.low, mine.high, d);
    }
    for (const Piece& p : pieces(owners, towers)) want.emplace_back(p.low, p.high, p.device);
    std::sort(left.begin(), left.end());
    std::sort(want.begin(), want.end());
    EXPECT_EQ(left, want);
    if (devices > 1) continue;
    EXPECT_LE(stack_depths(owners, towers, 1)[0], static_cast<int>(std::bit_width(static_cast<unsigned>(towers))));
  }
}

/// Layers with large weights, of which a micro-batch makes little else.
Graph heavy_net() {
  Builder b("heavy");
  Value h = b.input("x", f32, {kBatch, 160});
  for (const char* name : {"a", "b", "c", "d"}) h = tanh(matmul(h, b.variable(std::string(name) + "/w", {160, 160}, {.init = "normal", .init_value = 0.1})) + b.variable(std::string(name) + "/b", {160}));
  b.metric("loss", reduce_sum(square(h)));
  b.minimize(reduce_sum(square(h)), Momentum{.learning_rate = 0.01});
  return run_passes(training_passes(), std::move(b).build());
}
constexpr std::int64_t kWeights = 160 * 160 * 4;

int accumulating(const PlacedGraph& plan) { return static_cast<int>(std::count_if(plan.nodes.begin(), plan.nodes.end(), accumulates)); }

Tensors state_trained(const PlacedGraph& plan) {
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  Program program(std::make_shared<const PlacedGraph>(plan), kernels());
  Runner runner(program);
  for (const auto& [name, value] : state_for(*plan.graph)) program.set_state(name, value);
  for (std::uint64_t k = 0; k < 3; ++k) {
    const Tensors feeds = feeds_for(*plan.graph, plan.batch, k);
    if (Outcome o = runner.run(views(feeds)); o.error) std::rethrow_exception(o.error);
  }
  Tensors out;
  for (NodeId id : plan.graph->variables()) out.emplace(plan.graph->node(id).name, program.state(plan.graph->node(id).name));
  return out;
}

TEST(Accumulation, has_the_bits_of_a_tower_a_device_and_stands_in_its_file) {
  const auto graph = std::make_shared<const Graph>(heavy_net());
  for (auto [T, rows] : {std::pair(2, 4), {3, 6}, {7, 20}, {8, 7}, {16, 16}}) {
    const PlacedGraph apart = place(graph, to_strategy(Mirrored{.devices = sims(T), .towers = T, .threads = 1}), sim_cluster(T), rows);
    EXPECT_EQ(accumulating(apart), 0);
    const Tensors want = state_trained(apart);
    const std::vector<std::pair<const char*, Strategy>> all = {
        {"in turn", to_strategy(Single{.device = sims(1)[0], .towers = T, .threads = 1})},
        {"mirrored", to_strategy(Mirrored{.devices = sims(2), .towers = T, .threads = 1})},
        {"sharded", to_strategy(Sharded{.devices = sims(2), .towers = T, .threads = 1})},
        {"towers", to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .towers = T, .threads = 1})},
        {"layers", to_strategy(Layers{.devices = sims(2), .towers = T, .threads = 1})},
        {"gpipe", to_strategy(Layers{.devices = sims(3), .towers = T, .order = PhaseOrder::gpipe, .threads = 1})},
        {"1f1b", to_strategy(Layers{.devices = sims(3), .towers = T, .order = PhaseOrder::one_f_one_b, .threads = 1})},
        {"interleaved", to_strategy(Layers{.devices = sims(2), .towers = T, .order = PhaseOrder::interleaved, .chunks = 2, .threads = 1})},
        {"hybrid", to_strategy(Layers{.devices = sims(4), .towers = T, .replicas = 2, .order = PhaseOrder::one_f_one_b, .threads = 1})}};
    for (const auto& [name, strategy] : all) {
      const PlacedGraph plan = place(graph, strategy, sim_cluster(4), rows, {.accumulate_all = true});
      EXPECT_TRUE(T < 4 || accumulating(plan) >= 8) << name << " of " << T;
      EXPECT_EQ(state_trained(plan), want) << name << " of " << T;
      for (const DeviceForecast& d : forecast(plan).devices) EXPECT_LE(d.live, d.bytes) << name << " of " << T;
      const std::string text = write_plan(plan);
      EXPECT_EQ(write_plan(read_plan(text, "plan.json", graph->shared_ops())), text);
    }
  }
}

TEST(Accumulation, keeps_about_the_logarithm_of_the_micro_batches_where_weights_are_large) {
  const auto graph = std::make_shared<const Graph>(heavy_net());
  for (PhaseOrder order : {PhaseOrder::by_tower, PhaseOrder::one_f_one_b, PhaseOrder::gpipe})
    for (int T : {16, 64}) {
      const PlacedGraph plan = place(graph, to_strategy(Layers{.devices = sims(2), .towers = T, .order = order, .threads = 1}), sim_cluster(2), T);
      const std::vector<std::int64_t> live = live_maxima(BoundPlan(plan));
      const std::vector<DeviceBytes> bytes = device_bytes(plan);
      for (std::size_t d = 0; d < 2; ++d) {  // two weights each
        const std::int64_t mine = bytes[d].total() - bytes[d].state, frames = 64 * (1 << 10) + T * 8 * (1 << 10);
        EXPECT_LE(mine, (2 * (std::bit_width(static_cast<unsigned>(T)) - 1) + 1) * kWeights + frames) << to_string(order) << " of " << T;
        EXPECT_LE(static_cast<double>(mine), 1.05 * static_cast<double>(live[d])) << to_string(order) << " of " << T;
      }
    }
}

TEST(Accumulation, is_not_where_parts_lie_in_what_towers_kept_or_towers_run_side_by_side) {
  const auto graph = std::make_shared<const Graph>(heavy_net());
  const Strategy gpipe = to_strategy(Layers{.devices = sims(2), .towers = 16, .order = PhaseOrder::gpipe, .threads = 1});
  EXPECT_EQ(accumulating(place(graph, gpipe, sim_cluster(2), 16)), 4);
  EXPECT_EQ(accumulating(place(graph, gpipe, sim_cluster(2), 16 * 1024)), 0);  // of a thousand rows each
  const Strategy single = to_strategy(Single{.device = sims(1)[0], .towers = 8, .threads = 1});
  EXPECT_EQ(accumulating(place(graph, single, sim_cluster(1), 8)), 4);
  EXPECT_EQ(accumulating(place(graph, single, sim_cluster(1, true, 2), 8)), 0);
  const Strategy few = to_strategy(Single{.device = sims(1)[0], .towers = 2, .threads = 1});
  EXPECT_EQ(accumulating(place(graph, few, sim_cluster(1), 8)), 0);  // the join reads less
}

/// Round a ring parts are added one behind the other: it matters whether a device has joined its towers' before.
TEST(ArithmeticHash, of_a_ring_tells_parts_of_towers_from_parts_of_devices) {
  PlacedGraph plan = place(std::make_shared<const Graph>(heavy_net()), to_strategy(Mirrored{.devices = sims(2), .towers = 8, .threads = 1, .reduction = Reduce::ring}), sim_cluster(2), 8);
  const std::string before = arithmetic_hash(plan);
  for (PlanNode& n : plan.nodes)
    if (n.sum == SumWay::ring && plan.maker(n.inputs[0]).scope == Scope::device) n.inputs = plan.maker(n.inputs[0]).inputs;
  EXPECT_NE(arithmetic_hash(plan), before);
}

TEST(Accumulation, is_not_where_a_tower_may_be_ahead_of_the_one_before_it) {
  const auto graph = std::make_shared<const Graph>(heavy_net());
  const Strategy gpipe = to_strategy(Layers{.devices = sims(2), .towers = 4, .order = PhaseOrder::gpipe, .threads = 1});
  for (const char* device : {"sim:0", "sim:1"}) {
    const PlacedGraph plan = place(graph, gpipe, sim_cluster(2), 4, {.rules = {{"tower_1/**", parse_devices(device), "a test"}}, .accumulate_all = true});
    EXPECT_EQ(verify(plan), std::vector<std::string>()) << device;
  }
}

}  // namespace
}  // namespace belfry::test
