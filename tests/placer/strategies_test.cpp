#include <gtest/gtest.h>

#include <belfry/graph/structural.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

/// Three variables of unlike size with momentum, and a norm over all gradients.
std::shared_ptr<const Graph> three_layers() {
  Builder b("three_layers");
  Value h = b.input("x", f32, {kBatch, 8});
  const std::int64_t widths[] = {8, 64, 32, 4};
  for (std::size_t k = 0; k < 3; ++k) h = tanh(matmul(h, b.variable("w" + std::to_string(k), {widths[k], widths[k + 1]}, {.init = "normal", .init_value = 0.3})));
  b.minimize(mean(square(h)), Momentum{.learning_rate = 0.1});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

TEST(Strategies, towers_spread_variables_by_bytes_with_all_that_belongs_to_them) {
  auto graph = three_layers();
  auto plan = std::make_shared<const PlacedGraph>(place(graph, to_strategy(Towers{.devices = sims(2), .spread = true, .threads = 1}), sim_cluster(2), 6, {}));
  EXPECT_EQ(verify(*plan), std::vector<std::string>());
  std::map<std::string, std::string> where;
  for (const PlanNode& n : plan->nodes)
    if (n.scope == Scope::state) where[n.name] = to_string(plan->cluster.devices[static_cast<std::size_t>(n.holders.front())].id);
  // w1 is the largest; w0 and w2 together are smaller.
  EXPECT_EQ(where["w1"], "sim:0");
  EXPECT_EQ(where["w0"], "sim:1");
  EXPECT_EQ(where["w2"], "sim:1");
  for (const PlanNode& n : plan->nodes)
    for (auto [u, variable] : n.donates) EXPECT_EQ(n.holders, plan->maker(variable).holders) << n.name;
  // Nothing of an update crosses: gradients are joined where their variable is.
  for (const PlanNode& n : plan->nodes) {
    if (n.op == kAggregate) {
      EXPECT_EQ(n.holders.size(), 1u) << n.name;
    } else if (n.op == kCopy) {
      EXPECT_EQ(plan->maker(n.inputs[0]).scope, Scope::state) << n.name << " moves what no tower reads";
    }
  }
}

TEST(Strategies, towers_give_the_same_bits_wherever_their_variables_are) {
  for (const char* name : {"decay", "batch_norm", "tied"}) {
    Graph plain = training_graph(net(name), f32);
    auto graph = std::make_shared<const Graph>(plain);
    auto trained = [&](const auto& t) {
      auto plan = std::make_shared<const PlacedGraph>(place(graph, to_strategy(t), sim_cluster(3), 7, {.fetches = fetches_of(*graph)}));
      EXPECT_EQ(verify(*plan), std::vector<std::string>());
      Program program(plan, reference_kernels());
      Runner runner(program);
      for (const auto& [variable, value] : state_for(*graph)) program.set_state(variable, value);
      Tensors feeds = feeds_for(*graph, 7);
      for (int k = 0; k < 3; ++k)
        if (Outcome o = runner.run(views(feeds)); o.error) std::rethrow_exception(o.error);
      Tensors out;
      for (NodeId id : graph->variables()) out.emplace(graph->node(id).name, program.state(graph->node(id).name));
      return out;
    };
    Tensors want = trained(Towers{.devices = sims(3), .towers = 3, .threads = 1}), got = trained(Towers{.devices = sims(3), .spread = true, .towers = 3, .threads = 1});
    Tensors cut = trained(Layers{.devices = sims(3), .towers = 3, .order = PhaseOrder::one_f_one_b, .threads = 1});
    for (const auto& [variable, value] : want) {
      EXPECT_TRUE(got.at(variable) == value) << name << ": " << variable;
      EXPECT_TRUE(cut.at(variable) == value) << name << ", cut by cost: " << variable;
    }
  }
}

}  // namespace
}  // namespace belfry::test
