#include <gtest/gtest.h>

#include <cmath>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/gradients.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/expand.h>

#include "interpreter.h"
#include "op_case.h"
#include "says.h"

namespace belfry::test {
namespace {

using Loss = Value (*)(Value prediction, Value label);

/// The loss of each of two examples, and the gradient of their sum.
struct Losses : testing::Test {
  const HostTensor prediction = HostTensor::of<double>({2, 2}, {0.2, 0.9, 0.6, 0.4}), label = HostTensor::of<double>({2, 2}, {1, 0, 0.25, 0.75});

  void expect(Loss loss, const std::vector<double>& losses, const std::vector<double>& slopes) {
    Builder b("losses");
    Value p = b.input("p", f64, {kBatch, 2}), y = loss(p, b.input("y", f64, {kBatch, 2}));
    ASSERT_EQ(y.type(), (TensorType{f64, {kBatch}}));
    Value dp = gradients(b.graph(), {reduce_sum(y).id}, {p.id})[0];
    Tensors got = run_whole(b.graph(), {{"p", prediction}, {"y", label}}, {}, 2, {{"loss", y.id}, {"dp", dp.id}}).fetched;
    EXPECT_LE(distance(got.at("loss"), HostTensor::of<double>({2}, losses)), 1e-12);
    EXPECT_LE(distance(got.at("dp"), HostTensor::of<double>({2, 2}, slopes)), 1e-12);
  }
};

TEST_F(Losses, binary_cross_entropy_of_probabilities) {
  auto loss = [](double p, double y) { return -(y * std::log(p) + (1 - y) * std::log(1 - p)); };
  auto slope = [](double p, double y) { return ((1 - y) / (1 - p) - y / p) / 2; };
  expect([](Value p, Value y) { return binary_cross_entropy(p, y); }, {(loss(0.2, 1) + loss(0.9, 0)) / 2, (loss(0.6, 0.25) + loss(0.4, 0.75)) / 2},
         {slope(0.2, 1), slope(0.9, 0), slope(0.6, 0.25), slope(0.4, 0.75)});
  expect([](Value p, Value y) { return binary_cross_entropy(p, y, {.label_smoothing = 0.2}); }, {(loss(0.2, 0.9) + loss(0.9, 0.1)) / 2, (loss(0.6, 0.3) + loss(0.4, 0.7)) / 2},
         {slope(0.2, 0.9), slope(0.9, 0.1), slope(0.6, 0.3), slope(0.4, 0.7)});
}

TEST_F(Losses, mean_absolute_error) {
  expect([](Value p, Value y) { return mean_absolute_error(p, y); }, {0.85, 0.35}, {-0.5, 0.5, 0.5, -0.5});
}

TEST_F(Losses, huber_on_both_sides_of_delta) {
  expect([](Value p, Value y) { return huber(p, y, 0.5); }, {(0.5 * (0.8 - 0.25) + 0.5 * (0.9 - 0.25)) / 2, 0.35 * 0.35 / 2}, {-0.25, 0.25, 0.175, -0.175});
}

TEST_F(Losses, kl_divergence_sums_over_the_classes) {
  expect([](Value p, Value y) { return kl_divergence(p, y); },
         {std::log(5) + 1e-7 * std::log(1e-7 / 0.9), 0.25 * std::log(0.25 / 0.6) + 0.75 * std::log(0.75 / 0.4)}, {-5, -1e-7 / 0.9, -0.25 / 0.6, -0.75 / 0.4});
}

TEST_F(Losses, hinges) {
  expect([](Value p, Value y) { return hinge(p, y * 2 - 1); }, {(0.8 + 1.9) / 2, (1.3 + 0.8) / 2}, {-0.5, 0.5, 0.25, -0.25});
  expect([](Value p, Value y) { return squared_hinge(p, y * 2 - 1); }, {(0.8 * 0.8 + 1.9 * 1.9) / 2, (1.3 * 1.3 + 0.8 * 0.8) / 2}, {-0.8, 1.9, 0.5 * 1.3, -0.5 * 0.8});
}

TEST_F(Losses, an_example_of_rank_1_is_one_number) {
  Builder b("losses");
  Value p = b.input("p", f32, {kBatch}), y = b.input("y", i32, {kBatch});
  EXPECT_EQ(mean_squared_error(p, y).type(), (TensorType{f32, {kBatch}}));
}

TEST_F(Losses, refuse_what_does_not_fit) {
  Builder b("losses");
  Value p = b.input("p", f32, {kBatch, 2}), y = b.input("y", f32, {kBatch, 3});
  EXPECT_TRUE(says([&] { huber(p, y); }, {"[huber]", "'p' is f32(batch, 2)", "'y' is f32(batch, 3)", "one shape"}));
  EXPECT_TRUE(says([&] { huber(p, p, 0); }, {"[huber] delta is 0", "positive"}));
  EXPECT_TRUE(says([&] { categorical_cross_entropy(p, p, {.label_smoothing = 1.5}); }, {"label_smoothing is 1.5", "[0, 1]"}));
  EXPECT_TRUE(says([&] { mean_squared_error(cast(p, i32), p); }, {"[mean_squared_error]", "must be f32 or f64"}));
}

/// The weighted mean over towers is that of the whole batch, under every way of combining means.
TEST(WeightedMean, is_of_the_whole_batch) {
  HostTensor x = HostTensor::of<double>({5}, {1, 2, 3, 4, 5}), w = HostTensor::of<double>({5}, {1, 0, 2, 0.5, 0.5});
  for (Combine combine : {Combine::global_mean, Combine::tower_mean, Combine::tower_sum}) {
    Builder b("weighted");
    Value loss = weighted_mean(b.input("x", f64, {kBatch}), b.input("w", f64, {kBatch}));
    b.output(loss);
    b.graph().losses = {loss.id};
    auto graph = std::make_shared<const Graph>(run_passes(inference_passes(), std::move(b).build()));
    for (int towers : {1, 2, 3}) {
      TowerGraph tg = expand(graph, {.towers = towers, .batch = 5, .combine = combine, .fetches = {{"loss", graph->outputs.at(0)}}});
      EXPECT_LE(distance(run_towers(tg, {{"x", x}, {"w", w}}, {}).fetched.at("loss"), HostTensor::scalar(11.5 / 4)), 1e-15);
      EXPECT_EQ(run_towers(tg, {{"x", x}, {"w", HostTensor(f64, {5})}}, {}).fetched.at("loss"), HostTensor::scalar(0.0)) << "without weight";
    }
  }
}

}  // namespace
}  // namespace belfry::test
