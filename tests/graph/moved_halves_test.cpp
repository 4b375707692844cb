// Halves that are rounded before they are moved.
#include <algorithm>

#include <belfry/belfry.h>
#include <belfry/graph/text.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>

#include "interpreter.h"
#include "nets.h"

namespace belfry::test {
namespace {

/// What moves the elements of f32 pictures and filters; asked for, it is in f32.
Graph moving_net(bool asked) {
  Builder b("moving");
  b.precision(bf16);
  Value padded = pad(b.input("image", f32, {kBatch, 6, 8, 4}), {.before = {0, 1, 1, 0}, .after = {0, 1, 1, 0}, .value = 0.3});
  Value turned = transpose(reshape(padded, {kBatch, 8, 40}), {0, 2, 1});
  Value y = matmul(relu(conv2d(padded, b.variable("filter", {3, 3, 4, 4}, {.init = "glorot_uniform"}))), b.variable("w", {4, 5}, {.init = "glorot_uniform"}));
  b.minimize(mean(square(y)) + mean(square(matmul(turned, b.variable("v", {8, 3}, {.init = "glorot_uniform"})))), Sgd{.learning_rate = 0.1});
  for (Value v : {padded, turned})
    if (asked) b.output(v);
  return std::move(b).build();
}

TEST(MixedPrecision, rounds_before_it_moves_what_is_wanted_as_halves_alone) {
  auto f32_of_rows = [](const Graph& g) {
    std::int64_t out = 0;
    for (const Node& n : g.nodes())
      if (n.types[0].dtype == f32 && !symbolic_axes(n.types[0].shape).empty() && n.role == Role::forward) out += factor_of(n.types[0].shape);
    return out;
  };
  const Graph g = run_passes(training_passes(), moving_net(false)), as_f32 = run_passes(training_passes(), moving_net(true));
  for (const char* op : {"pad", "reshape", "transpose"}) {
    const auto moves = std::find_if(g.nodes().begin(), g.nodes().end(), [&](const Node& n) { return n.op->name == op; });
    EXPECT_EQ(moves->types[0].dtype, bf16) << op;
  }
  EXPECT_EQ(g.node(g.at("pad").node).inputs[0], g.at("image/bf16"));
  EXPECT_EQ(as_f32.type(as_f32.at("pad")).dtype, f32);
  EXPECT_EQ(f32_of_rows(as_f32) - f32_of_rows(g), 8 * 10 * 4 * 3) << "three values of f32 are halves";
  EXPECT_EQ(to_text(mixed_precision(g)), to_text(g)) << "a second time";
  Tensors feeds = feeds_for(g, 3);
  for (std::size_t i = 0; float& v : feeds.at("image").data<float>()) v = 1.0f / static_cast<float>(++i);
  auto run = [&](const Graph& of) { return run_whole(of, feeds, state_for(g), 3, fetches_of(of)); };
  const Result want = run(as_f32), got = run(g);
  EXPECT_EQ(got.fetched, want.fetched);
  EXPECT_EQ(got.state, want.state);
}

/// The slopes of what halves were computed in, whatever their dy is: that is rounded before it is spread. What sums rows stays f32, and so do norms of f32.
TEST(MixedPrecision, takes_slopes_in_the_halves_of_what_they_are_of) {
  Builder b("means");
  b.precision(bf16);
  Value y = relu(nn::batch_norm(conv2d(b.input("image", f32, {kBatch, 6, 8, 4}), b.variable("filter", {3, 3, 4, 8}, {.init = "glorot_uniform"}))) + b.variable("row", {8}));
  Value stream = reduce_mean(y, {.axes = {1, 2}}), wide = nn::layer_norm(stream * b.variable("gain", {8}));
  b.minimize(mean(square(wide)), Sgd{.learning_rate = 0.1});
  const Graph g = run_passes(training_passes(), std::move(b).build());
  auto types = [&](const std::string& op) {
    std::vector<DType> out;
    for (const Node& n : g.nodes())
      if (n.op->name == op && n.role == Role::backward)
        for (const TensorType& t : n.types) out.push_back(t.dtype);
    return out;
  };
  EXPECT_EQ(types("broadcast_like"), (std::vector<DType>{f32, bf16})) << "of the loss and of the mean";
  EXPECT_EQ(types("relu_gradient"), (std::vector<DType>{bf16}));
  EXPECT_EQ(types("batch_norm_gradient"), (std::vector<DType>{bf16, f32, f32}));
  EXPECT_EQ(types("layer_norm_gradient"), (std::vector<DType>{f32, f32, f32}));
  EXPECT_EQ(to_text(mixed_precision(g)), to_text(g)) << "a second time";
}

}  // namespace
}  // namespace belfry::test
