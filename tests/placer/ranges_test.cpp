#include <gtest/gtest.h>

#include <gmock/gmock.h>

#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

#include "plans.h"
#include "ran_as_planned.h"
#include "says.h"

namespace belfry::test {
namespace {

/// Variables long enough for ranges, and one that is not; all gradients are held to one norm, the variables averaged.
std::shared_ptr<const Graph> wide(bool clipped) {
  Builder b("wide");
  Value x = b.input("x", f32, {kBatch, 24});
  Value h = tanh(matmul(x, b.variable("w0", {24, 60}, {.init = "glorot_uniform"})) + b.variable("offset", {60}));
  h = matmul(h, b.variable("w1", {60, 7}, {.init = "glorot_uniform"}));
  b.minimize(mean(square(h)), Adam{.learning_rate = 0.01}, {.clip_norm = clipped ? 0.5 : 0.0, .average_decay = clipped ? 0.9 : 0.0});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

std::shared_ptr<const PlacedGraph> placed(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, const Cluster& cluster, std::int64_t batch = 8) {
  return std::make_shared<const PlacedGraph>(place(graph, strategy, cluster, batch, {.fetches = fetches_of(*graph)}));
}

const PlanNode& node_of(const PlacedGraph& plan, const std::string& name) {
  for (const PlanNode& n : plan.nodes)
    if (n.name == name) return n;
  throw std::runtime_error("no node " + name);
}

TEST(Ranges, cover_all_elements_once_in_whole_units) {
  for (std::int64_t elements : {128, 1000, 1440, 100000})
    for (std::size_t holders : {2u, 3u, 4u, 7u}) {
      std::int64_t at = 0;
      for (std::size_t h = 0; h < holders; ++h) {
        Range r = element_range(elements, holders, h);
        EXPECT_EQ(r.first, at);
        EXPECT_TRUE(r.first == elements || r.first % kRangeUnit == 0);
        EXPECT_LE(r.past - r.first, element_range(elements, holders, 0).past);
        EXPECT_EQ(r.past > r.first, elements >= static_cast<std::int64_t>(holders) * kRangeUnit || r.first < elements);
        at = r.past;
      }
      EXPECT_EQ(at, elements);
    }
}

TEST(Ranges, sharded_keeps_a_share_of_the_slots_and_moves_what_a_ring_would) {
  auto plan = placed(wide(false), to_strategy(Sharded{.devices = sims(4), .towers = 4, .threads = 1}), sim_cluster(4));
  EXPECT_EQ(verify(*plan), std::vector<std::string>());
  const std::int64_t w0 = 24 * 60 * 4, w1 = 60 * 7 * 4, offset = 60 * 4;
  EXPECT_TRUE(node_of(*plan, "adam_m/w0").ranged);
  EXPECT_FALSE(node_of(*plan, "adam_m/offset").ranged) << "60 elements are too few for four devices";
  EXPECT_FALSE(node_of(*plan, "w0").ranged);
  // Whole variables, and a quarter of two slots each.
  std::vector<DeviceBytes> bytes = device_bytes(*plan);
  const std::int64_t whole = w0 + w1 + 3 * offset;
  for (int d = 0; d < 4; ++d) EXPECT_NEAR(static_cast<double>(bytes[static_cast<std::size_t>(d)].state), static_cast<double>(whole) + static_cast<double>(2 * (w0 + w1)) / 4, 2 * 2 * kRangeUnit * 4 + 8 * kAlignment);
  // Every device receives three quarters of the sums and three quarters of the new values.
  Instances instances(*plan);
  std::int64_t landed = 0, gathered = 0;
  for (const PlanNode& n : plan->nodes)
    for (const Move& m : moves_of(instances, n))
      if (m.from != m.to && n.op == kAllGather) gathered += m.bytes;
      else if (m.from != m.to && n.op == kAggregate && n.ranged) landed += m.bytes;
  EXPECT_EQ(gathered, 3 * (w0 + w1));
  EXPECT_EQ(landed, 3 * (w0 + w1));
}

TEST(Ranges, change_no_bits) {
  const std::int64_t batch = 7;
  for (bool clipped : {false, true}) {
    auto graph = wide(clipped);
    Tensors want = trained(placed(graph, to_strategy(Single{.device = {0, "sim", 0, -1}, .towers = 4, .threads = 1}), sim_cluster(1), batch), 6, kernels());
    for (int devices : {2, 3, 4})
      for (bool apart : {true, false})
        for (const auto& [name, strategy] : std::vector<NamedStrategy>{{"sharded", to_strategy(Sharded{.devices = sims(devices), .towers = 4, .threads = 1})},
                                                                      {"mirrored", to_strategy(Mirrored{.devices = sims(devices), .towers = 4, .threads = 1})}}) {
          auto plan = placed(graph, strategy, sim_cluster(devices, apart), batch);
          ASSERT_EQ(verify(*plan), std::vector<std::string>()) << name << " on " << devices;
          for (const auto& [variable, value] : trained(plan, 6, kernels())) EXPECT_TRUE(want.at(variable) == value) << name << " on " << devices << ": " << variable;
        }
  }
}

TEST(Ranges, stand_in_plans_and_placements_on_file) {
  auto graph = wide(true);
  auto plan = placed(graph, to_strategy(Sharded{.devices = sims(3), .towers = 3, .threads = 1}), sim_cluster(3));
  Placement decided = placement_of(*plan);
  EXPECT_TRUE(std::any_of(decided.rules.begin(), decided.rules.end(), [](const PlacementRule& r) { return r.ranges; }));
  PlacedGraph again = place(graph, decided, plan->cluster, {.fetches = fetches_of(*graph)});
  EXPECT_EQ(write_plan(again), write_plan(*plan));
  PlacementFile file = read_placement(write_placement(decided), "p.json");
  ASSERT_EQ(file.rules.size(), decided.rules.size());
  for (std::size_t i = 0; i < file.rules.size(); ++i) EXPECT_EQ(file.rules[i], decided.rules[i]);
}

TEST(Ranges, are_refused_where_a_node_cannot_be_in_them) {
  auto graph = wide(false);
  auto with = [&](const std::string& match, const char* devices) {
    return message_of([&] { place(graph, Placement{2, 8, Combine::global_mean, 1, {{match, parse_devices(devices), "asked", true}, {"**", parse_devices("sim:0-1"), "rest"}}}, sim_cluster(2), {}); });
  };
  EXPECT_EQ(with("adam_m/offset", "sim:0-1"), "the rule \"adam_m/offset\" puts 'adam_m/offset' in ranges, but it has 60 elements, and 2 devices share no fewer than 128; name what can be, or leave out \"ranges\"");
  EXPECT_THAT(with("w0", "sim:0"), testing::HasSubstr("is on one device"));
}

TEST(Ranges, that_were_damaged_are_objected_to) {
  auto whole = placed(wide(false), to_strategy(Sharded{.devices = sims(3), .towers = 3, .threads = 1}), sim_cluster(3));
  auto objection = [&](auto damage) {
    PlacedGraph plan = *whole;
    damage(plan);
    std::vector<std::string> found = verify(plan);
    return found.empty() ? "" : found[0];
  };
  auto find = [](PlacedGraph& plan, auto is) -> PlanNode& { return *std::find_if(plan.nodes.begin(), plan.nodes.end(), is); };
  auto named = [&](PlacedGraph& plan, const std::string& name) -> PlanNode& { return find(plan, [&](const PlanNode& n) { return n.name == name; }); };
  EXPECT_THAT(objection([&](PlacedGraph& p) { named(p, "adam_m/w0").ranged = false; }), testing::HasSubstr("ranges: 'adam_m/w0' is written by"));
  EXPECT_THAT(objection([&](PlacedGraph& p) { named(p, "adam_m/offset").ranged = true; }), testing::HasSubstr("has 60 elements"));
  EXPECT_THAT(objection([&](PlacedGraph& p) { named(p, "w0").ranged = true; }), testing::HasSubstr("ranges: "));
  EXPECT_THAT(objection([&](PlacedGraph& p) { find(p, [](const PlanNode& n) { return n.op == kAllGather; }).attributes = {{"how", "same"}}; }), testing::HasSubstr("by same"));
  EXPECT_THAT(objection([&](PlacedGraph& p) { find(p, [](const PlanNode& n) { return n.op == kAllGather; }).waits.clear(); }), testing::HasSubstr("but other bytes are there"));
  EXPECT_THAT(objection([&](PlacedGraph& p) { find(p, [](const PlanNode& n) { return n.op == kAggregate && n.ranged; }).ranged = false; }), testing::Not(""));
}

}  // namespace
}  // namespace belfry::test
