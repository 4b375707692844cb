#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/nn/layers.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/recompute.h>

#include "all_groups.h"
#include "plans.h"
#include "ran_as_planned.h"
#include "says.h"

namespace belfry::test {
namespace {

/// Sixteen layers, one with random values, one with statistics that the backward pass reads.
std::shared_ptr<const Graph> deep() {
  Builder b("deep");
  Value h = b.input("x", f32, {kBatch, 16});
  for (int k = 0; k < 16; ++k) {
    h = matmul(h, b.variable("w" + std::to_string(k), {16, 16}, {.init = "normal", .init_value = 0.3})) + b.variable("b" + std::to_string(k), {16});
    h = k == 4 ? nn::dropout(tanh(h), {.rate = 0.3}) : k == 9 ? tanh(nn::batch_norm(h)) : tanh(h);
  }
  b.minimize(mean(square(h)), Momentum{.learning_rate = 0.1});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

std::shared_ptr<const PlacedGraph> placed(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, int devices, int stretches, bool fuse = false, std::int64_t rows = 33) {
  PlaceOptions o{.fetches = fetches_of(*graph), .recompute = {stretches}};
  if (fuse) o.kernels = chooser(kernels()), o.groups = all_groups;
  return std::make_shared<const PlacedGraph>(place(graph, strategy, sim_cluster(devices), rows, o));
}

std::int64_t frame_of(const PlacedGraph& plan) {
  DeviceBytes b = device_bytes(plan)[0];
  return b.total() - b.state;
}

TEST(Recompute, changes_no_bits_and_no_arithmetic_hash) {
  auto graph = deep();
  for (bool fuse : {false, true})
    for (const auto& [name, strategy] : std::vector<NamedStrategy>{{"single", to_strategy(Single{.device = sims(1)[0], .towers = 2, .threads = 1})},
                                                                   {"mirrored", to_strategy(Mirrored{.devices = sims(2), .towers = 2, .threads = 1})},
                                                                   {"1f1b", to_strategy(Layers{.devices = sims(2), .towers = 2, .order = PhaseOrder::one_f_one_b, .threads = 1})}}) {
      int devices = name == "single" ? 1 : 2;
      auto kept = placed(graph, strategy, devices, 0, fuse), again = placed(graph, strategy, devices, 4, fuse);
      ASSERT_EQ(verify(*again), std::vector<std::string>()) << name;
      EXPECT_EQ(again->arithmetic_hash, kept->arithmetic_hash) << name;
      PlacedGraph edited = *again;  // what is computed again is computed otherwise
      for (PlanNode& n : edited.nodes)
        if (n.again)
          for (Variant& v : n.by_class) v.kernel = "another";
      EXPECT_NE(arithmetic_hash(edited), kept->arithmetic_hash) << name;
      Tensors want = trained(kept, 3, kernels()), got = trained(again, 3, kernels());
      for (const auto& [variable, value] : want) EXPECT_TRUE(got.at(variable) == value) << name << ": " << variable;
    }
}

TEST(Recompute, keeps_what_goes_from_stretch_to_stretch_alone) {
  auto graph = deep();
  Strategy single = to_strategy(Single{.device = sims(1)[0], .threads = 1});
  std::int64_t all = frame_of(*placed(graph, single, 1, 0, false, 500)), four = frame_of(*placed(graph, single, 1, 4, false, 500));
  EXPECT_LT(static_cast<double>(four), 0.55 * static_cast<double>(all)) << four << " of " << all;
  auto plan = placed(graph, single, 1, 4);
  auto count = std::count_if(plan->nodes.begin(), plan->nodes.end(), [](const PlanNode& n) { return n.again; });
  auto forward = std::count_if(plan->nodes.begin(), plan->nodes.end(), [](const PlanNode& n) { return n.scope == Scope::tower && n.role == Role::forward && !n.inserted; });
  EXPECT_GT(count, forward / 3);
  EXPECT_LT(count, forward);
}

/// What another device reads is kept, so that each device computes again from what it has, and only then: else it would be kept until backward as the first is.
TEST(Recompute, in_pipelines_begins_on_each_device_with_its_backward_pass) {
  const auto graph = deep();
  for (PhaseOrder order : {PhaseOrder::gpipe, PhaseOrder::one_f_one_b})
    for (int stretches : {3, 6}) {
      const Strategy strategy = to_strategy(Layers{.devices = sims(4), .towers = 8, .order = order, .threads = 1, .cut = LayerCut::variables});
      const auto plan = placed(graph, strategy, 4, stretches, false, 512), kept = placed(graph, strategy, 4, 0, false, 512);
      std::map<int, int> forward, again;
      for (const PlanNode& n : plan->nodes) {
        if (n.scope != Scope::tower) continue;
        const int d = plan->device_of(n, 0);
        if (n.role == Role::forward) forward[d] = std::max(forward[d], n.phases[0]);
        if (!n.again) continue;
        ++again[d];
        for (ValueIndex v : values_read(n))
          if (const PlanNode& m = plan->maker(v); m.scope == Scope::tower && m.role == Role::backward) {
            EXPECT_EQ(plan->device_of(m, 0), d) << n.name << " reads " << m.name;
          }
      }
      for (const PlanNode& n : plan->nodes)
        if (n.again) {
          EXPECT_GT(n.phases[0], forward.at(plan->device_of(n, 0))) << n.name;
        }
      const std::vector<std::int64_t> less = total_bytes(*plan), all = total_bytes(*kept);
      for (std::size_t d = 0; d < 2; ++d) EXPECT_LT(static_cast<double>(less[d]), 0.9 * static_cast<double>(all[d])) << to_string(order) << ", " << stretches << " stretches, sim:" << d;
      EXPECT_GE(again.size(), 2u);
    }
}

TEST(Recompute, of_most_towers_goes_by_where_most_of_them_are) {
  const auto graph = deep();
  const Strategy single = to_strategy(Single{.device = sims(2)[0], .towers = 4, .threads = 1});
  auto again = [&](int apart) {
    PlaceOptions o{.recompute = {4}};
    for (int t = 0; t < apart; ++t)
      for (const char* name : {"tanh_2", "tanh_5", "tanh_8"}) o.rules.push_back({fmt::format("tower_{}/{}", t, name), {sims(2)[1]}, "by hand"});
    const PlacedGraph plan = place(graph, single, sim_cluster(2), 8, o);
    EXPECT_EQ(verify(plan), std::vector<std::string>());
    return std::count_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.again; });
  };
  EXPECT_EQ(again(1), again(0));
  EXPECT_LT(again(3), again(0));
}

TEST(Recompute, refuses_devices_as_it_is_without) {
  const auto graph = deep();
  auto message = [&](int stretches) {
    PlaceOptions o{.recompute = {stretches}};
    o.rules.push_back({"tanh_2", parse_devices("sim:9"), "by hand"});
    return message_of([&] { place(graph, to_strategy(Single{.device = sims(1)[0]}), sim_cluster(1), 8, o); });
  };
  EXPECT_THAT(message(0), testing::HasSubstr("'tanh_2'"));
  EXPECT_EQ(message(3), message(0));
}

TEST(Recompute, stands_in_plans_and_placements_on_file) {
  auto graph = deep();
  auto plan = placed(graph, to_strategy(Mirrored{.devices = sims(2), .threads = 1}), 2, 4, true);
  const std::string text = write_plan(*plan);
  PlacedGraph read = read_plan(text, "p.json", graph->shared_ops());
  EXPECT_EQ(verify(read), std::vector<std::string>());
  EXPECT_EQ(write_plan(read), text);
  EXPECT_EQ(arithmetic_hash(read), plan->arithmetic_hash);
  Placement decided = placement_of(read);
  EXPECT_FALSE(decided.recompute.empty());
  EXPECT_EQ(read_placement(write_placement(decided), "q.json").recompute, decided.recompute);
}

/// What has no inputs goes with its first reader where no rule names it: the second time it goes with the first, so that a plan's decisions give the plan.
TEST(Recompute, puts_what_has_no_inputs_where_it_was) {
  Builder b("mean");
  b.minimize(mean(square(b.input("x", f32, {kBatch, 16}) * b.variable("w", {16}))), Sgd{.learning_rate = 0.1});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  PlaceOptions o{.recompute = {0, {"reduce_mean/row_weight"}}};
  o.rules.push_back({"reduce_mean/mul", {sims(2)[1]}, "by hand"});
  const PlacedGraph plan = place(graph, to_strategy(Single{.device = sims(2)[0], .threads = 1}), sim_cluster(2), 8, o);
  auto vector_of = [&](const std::string& name) { return std::find_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& n) { return n.name == name; })->vector; };
  EXPECT_NE(vector_of("reduce_mean/row_weight"), vector_of("square"));
  EXPECT_EQ(vector_of("reduce_mean/row_weight.again"), vector_of("reduce_mean/row_weight"));
  const std::string text = write_plan(plan);
  const PlacedGraph read = read_plan(text, "p.json", graph->shared_ops());
  EXPECT_EQ(write_plan(place(read.graph, placement_of(read), read.cluster, {})), text);
  o.rules = {{"tower_0/reduce_mean/row_weight.again", {sims(2)[1]}, "by hand"}};
  o.must_decide = 1;
  EXPECT_TRUE(says<UserError>([&] { place(graph, to_strategy(Single{.device = sims(2)[0], .threads = 1}), sim_cluster(2), 8, o); }, {"'reduce_mean/row_weight.again' is computed again where it was computed first; move that"}));
}

TEST(Recompute, refuses_what_is_no_forward_node) {
  auto graph = deep();
  auto with = [&](const std::string& name) {
    return message_of([&] { place(graph, to_strategy(Single{}), sim_cluster(1), 4, {.recompute = {0, {name}}}); });
  };
  EXPECT_THAT(with("tahn_3"), testing::HasSubstr("'tahn_3' is to be computed again, but the towers have no such node in their forward pass"));
  EXPECT_THAT(with("w3"), testing::HasSubstr("no such node"));
  EXPECT_THAT(message_of([&] { place(graph, to_strategy(Single{}), sim_cluster(1), 4, {.recompute = {1}}); }), testing::HasSubstr("from 2 stretches on"));
}

TEST(Recompute, that_computes_something_else_is_objected_to) {
  auto whole = placed(deep(), to_strategy(Single{.device = sims(1)[0], .threads = 1}), 1, 4);
  auto objection = [&](auto damage) {
    PlacedGraph plan = *whole;
    damage(plan, *std::find_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.again && n.op == "matmul"; }));
    std::vector<std::string> found = verify(plan);
    return found.empty() ? "" : found[0];
  };
  EXPECT_THAT(objection([](PlacedGraph&, PlanNode& n) { n.attributes.set("transpose_b", true); }), testing::Not(""));
  EXPECT_THAT(objection([](PlacedGraph&, PlanNode& n) { n.again = false; }), testing::HasSubstr("is inserted, but computes something"));
  EXPECT_THAT(objection([](PlacedGraph&, PlanNode& n) { n.role = Role::forward; }), testing::HasSubstr("is said to be forward"));
}

}  // namespace
}  // namespace belfry::test
