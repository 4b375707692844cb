#include <gtest/gtest.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/expand.h>

#include "interpreter.h"
#include "nets.h"
#include "says.h"

namespace belfry::test {
namespace {

/// A mean per tower and a sum over rows of the same shape.
struct PerTower {
  Builder b{"net"};
  Value x = b.input("x", f64, {kBatch, 3});
  Value one(const char* name) { return b.variable(name, {3}, {.dtype = f64, .init = "ones"}); }
  Value mean = batch_norm(x, one("gamma"), one("beta"), one("m"), one("v")).output(1);
  Value part = reduce_sum(x, {.axes = {0}});
  Value w = one("w"), u = one("u");
  TowerGraph expanded(std::int64_t batch = 4, int towers = 2) { return expand(std::make_shared<const Graph>(std::move(b).build()), {.towers = towers, .batch = batch}); }
};

TEST(SplitErrors, a_value_per_tower_beside_a_partial_is_refused) {
  PerTower net;
  net.b.update(net.w, net.mean + net.part);
  EXPECT_TRUE(says([&] { net.expanded(); }, {"[add] 'add' joins a value per tower with one that is summed", "tower_mean"}));
}

TEST(SplitErrors, a_value_per_tower_that_must_be_whole_is_refused) {
  PerTower net;
  net.b.update(net.w, net.b.graph().add("sgd", {net.w, net.mean, constant(net.b.graph(), HostTensor::scalar(0.5))}));
  EXPECT_TRUE(says([&] { net.expanded(); }, {"[sgd] 'sgd' reads 'batch_norm:1', of which each tower has its own; take its tower_mean"}));
}

TEST(SplitErrors, a_variable_that_becomes_a_value_per_tower_is_refused) {
  PerTower net;
  net.b.update(net.w, net.mean);
  EXPECT_TRUE(says([&] { net.expanded(); }, {"'w' becomes 'batch_norm:1', of which each tower has its own; take its tower_mean"}));
}

TEST(SplitErrors, a_demand_from_elsewhere_cures_a_per_tower_beside_a_partial) {
  PerTower net;
  net.b.update(net.w, tower_mean(net.mean + net.part));
  net.b.update(net.u, exp(net.part));
  EXPECT_NO_THROW(net.expanded());
}

TEST(SplitErrors, a_batch_without_rows_or_no_towers_are_refused) {
  PerTower a, b;
  EXPECT_TRUE(says([&] { a.expanded(0); }, {"a batch has at least one row, not 0"}));
  EXPECT_TRUE(says([&] { b.expanded(4, 0); }, {"at least one tower, not 0"}));
  PerTower c, d;
  EXPECT_TRUE(says([&] { c.expanded(4, 65537); }, {"at most 65536 towers, not 65537"}));
  EXPECT_TRUE(says([&] { d.expanded(std::int64_t{1} << 62); }, {"'x' f64(batch, 3) with a batch of 4611686018427387904 has more than 17592186044416 bytes"}));
}

TEST(SplitErrors, a_symbol_that_is_not_bound_is_refused) {
  Builder b("net");
  b.metric("y", relu(b.input("x", f32, {kBatch, Dim(1, "time")})));
  EXPECT_TRUE(says([&] { expand(std::make_shared<const Graph>(std::move(b).build()), {.towers = 2, .batch = 4}); }, {"'x' has the symbol 'time', which is not bound"}));
  Builder c("net");  // no value has it, so it would count as the rows
  c.metric("y", c.input("x", f32, {kBatch}) * row_count(c.graph(), {Dim(2, "time"), kBatch}, f32));
  EXPECT_TRUE(says([&] { expand(std::make_shared<const Graph>(std::move(c).build()), {.towers = 2, .batch = 4}); }, {"'row_count' has the symbol 'time', which is not bound"}));
}

TEST(SplitStates, of_p_times_q_beside_exp_q_do_not_depend_on_the_visiting_order) {
  Builder b("net");
  Value x = b.input("x", f64, {kBatch}), p = reduce_sum(x), q = reduce_sum(x * x), y = p * q, e = exp(q);
  Value first = b.variable("a", {}, {.dtype = f64}), second = b.variable("b", {}, {.dtype = f64});
  b.update(first, y);
  b.update(second, e);
  auto graph = std::make_shared<const Graph>(std::move(b).build());
  std::vector<NodeId> in_turn, late;
  for (NodeId id = 0; id < graph->size(); ++id) in_turn.push_back(id);
  late = in_turn;
  std::swap(late[static_cast<std::size_t>(y.id.node)], late[static_cast<std::size_t>(e.id.node)]);
  std::vector<std::string> states[2];
  int turn = 0;
  for (const auto& order : {in_turn, late}) {
    TowerGraph tg = expand(graph, {.towers = 3, .batch = 7, .visiting_order = order});
    std::map<std::string, std::string> sorted;
    for (const PlanValue& v : tg.values) sorted[v.name] = to_string(v.state);
    for (const auto& [name, state] : sorted) states[turn].push_back(name + " " + state);
    ++turn;
  }
  EXPECT_EQ(states[0], states[1]);
  // Both are demanded in the first pass: a product has no two partials, exp none.
  EXPECT_NE(std::find(states[0].begin(), states[0].end(), "reduce_sum.aggregate replicated"), states[0].end());
  EXPECT_NE(std::find(states[0].begin(), states[0].end(), "reduce_sum_1.aggregate replicated"), states[0].end());
}

TEST(SplitStates, of_a_per_tower_value_leave_by_a_mean_or_are_fetched_stacked) {
  PerTower net;
  net.b.update(net.w, tower_mean(net.mean));
  ValueId mean = net.mean.id;
  auto graph = std::make_shared<const Graph>(std::move(net.b).build());
  HostTensor x = HostTensor::of<double>({3, 3}, {1, 2, 3, 3, 4, 5, 7, 8, 9});
  Result r = run_towers(expand(graph, {.towers = 2, .batch = 3, .fetches = {{"mean", mean}}}), {{"x", x}}, state_for(*graph));
  EXPECT_EQ(r.fetched.at("mean"), HostTensor::of<double>({2, 3}, {2, 3, 4, 7, 8, 9}));
  EXPECT_EQ(r.state.at("w"), HostTensor::of<double>({3}, {4.5, 5.5, 6.5}));
}

TEST(SplitStates, an_optimiser_demands_its_gradient_so_that_a_fetch_of_it_costs_nothing) {
  auto graph = std::make_shared<const Graph>(training_graph(net("dropout")));
  auto aggregates = [&](const TowerGraph& tg) { return std::count_if(tg.nodes.begin(), tg.nodes.end(), [](const PlanNode& n) { return n.op == kAggregate; }); };
  std::vector<std::pair<std::string, ValueId>> gradients;
  for (const auto& f : fetches_of(*graph))
    if (f.first.starts_with("gradient of")) gradients.push_back(f);
  EXPECT_EQ(aggregates(expand(graph, {.towers = 3, .batch = 7})), aggregates(expand(graph, {.towers = 3, .batch = 7, .fetches = gradients})));
}

}  // namespace
}  // namespace belfry::test
