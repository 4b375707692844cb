// An op of the user's own goes the whole way: graph, gradient, towers, plan, run.
#include <gtest/gtest.h>

#include <cmath>

#include <belfry/ops/passes/passes.h>

#include "../../examples/softsign/softsign.h"
#include "plans.h"

namespace belfry::test {
namespace {

std::shared_ptr<const OpSet> ops_with_softsign() {
  auto ops = std::make_shared<OpSet>(standard_ops());
  ops->add(my::softsign_def());
  return ops;
}

Graph net_with_softsign() {
  Builder b("own_op", ops_with_softsign());
  Value x = b.input("x", f64, {kBatch, 3});
  Value w = b.variable("w", {3, 2}, {.dtype = f64, .init = "normal", .init_value = 1});
  Value y = my::softsign(matmul(x, w));
  b.metric("y", y);
  b.minimize(reduce_mean(square(y)), Sgd{.learning_rate = 0.1});
  return std::move(b).build();
}

double loss_at(const Graph& graph, const Tensors& feeds, const Tensors& state) {
  Result r = run_whole(graph, feeds, state, 5, {{"y", graph.metrics.at("y")}});
  double sum = 0;
  auto y = r.fetched.at("y").data<double>();
  for (double v : y) sum += v * v;
  return sum / static_cast<double>(y.size());
}

TEST(OwnOp, has_the_gradient_that_differences_show) {
  Graph graph = run_passes(training_passes(), net_with_softsign());
  Tensors feeds = feeds_for(graph, 5), state = state_for(graph);
  Result r = run_whole(graph, feeds, state, 5, fetches_of(graph));
  const HostTensor& gradient = r.fetched.at("gradient of w");
  for (std::size_t i = 0; i < 6; ++i) {
    const double h = 1e-6;
    Tensors up = state, down = state;
    up.at("w").data<double>()[i] += h;
    down.at("w").data<double>()[i] -= h;
    EXPECT_NEAR(gradient.data<double>()[i], (loss_at(graph, feeds, up) - loss_at(graph, feeds, down)) / (2 * h), 1e-7) << i;
  }
}

TEST(OwnOp, runs_in_a_plan_with_two_towers) {
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), net_with_softsign()));
  auto plan = std::make_shared<const PlacedGraph>(
      place(graph, to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .threads = 1}), sim_cluster(2), 5, {.fetches = fetches_of(*graph)}));
  ASSERT_EQ(verify(*plan), std::vector<std::string>{});
  Program program(plan, reference_kernels());
  Tensors feeds = feeds_for(*graph, 5), state = state_for(*graph);
  for (const auto& [name, value] : state) program.set_state(name, value);
  Runner runner(program);
  Outcome got = runner.run(views(feeds));
  ASSERT_FALSE(got.error);
  Result want = run_whole(*graph, feeds, state, 5, fetches_of(*graph));
  EXPECT_LT(difference(got.fetched, want.fetched), 1e-12);
  auto x = feeds.at("x").data<double>(), w = state.at("w").data<double>();
  double first = x[0] * w[0] + x[1] * w[2] + x[2] * w[4];
  EXPECT_NEAR(got.fetched.at("y").data<double>()[0], first / (1 + std::abs(first)), 1e-12);
}

TEST(OwnOp, cannot_take_a_name_that_is_taken) {
  OpSet ops = standard_ops();
  ops.add(my::softsign_def());
  EXPECT_THROW(ops.add(my::softsign_def()), UserError);
}

}  // namespace
}  // namespace belfry::test
