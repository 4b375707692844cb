// Batch norms that become scales of the filters before them.
#include <algorithm>
#include <functional>

#include <belfry/frontends/builder/builder.h>
#include <belfry/ops/passes/passes.h>

#include "graphs.h"
#include "interpreter.h"
#include "nets.h"

namespace belfry::test {
namespace {

Graph for_comparison(const Graph& g) { return run_passes(inference_passes(), g); }

/// A picture, a filter, a bias and what a norm has, all of a file or drawn.
struct Channels {
  explicit Channels(Builder& of) : b(of) {}
  Value drawn(const char* name, Shape shape) { return b.variable(name, std::move(shape), {.init = "uniform", .init_value = 0.5, .trainable = false}); }
  Value norm(Value of, const char* name = "norm") { return relu(identity(batch_norm(of, gamma, beta, mean, square(mean)), name)); }
  Value folded(Value filter, Value shift) { return relu(identity(conv2d(x, filter) + shift, "norm")); }

  Builder& b;
  Value x = b.input("x", f32, {kBatch, 6, 6, 4}), filter = drawn("filter", {3, 3, 4, 8}), bias = drawn("bias", {8}), gamma = drawn("gamma", {8}), beta = drawn("beta", {8}), mean = drawn("mean", {8});
  Value deviation() { return sqrt(square(mean) + 1e-3); }
};
Graph channels(const std::function<Value(Channels)>& build) {
  Builder b("net");
  b.output(build(Channels(b)));
  return std::move(b).build();
}

TEST(FoldNorms, makes_a_norm_the_scale_of_filters_and_one_addition) {
  auto scaled = [](Channels& c) { return c.gamma / c.deviation(); };
  EXPECT_SAME_GRAPH(for_comparison(fold_norms(channels([](Channels c) { return c.norm(conv2d(c.x, c.filter)); }))),
                    for_comparison(channels([&](Channels c) { Value s = scaled(c); return c.folded(c.filter * s, c.beta - c.mean * s); })));
  EXPECT_SAME_GRAPH(for_comparison(fold_norms(channels([](Channels c) { return c.norm(conv2d(c.x, square(c.filter)) + c.bias * 2); }))),
                    for_comparison(channels([&](Channels c) { Value s = scaled(c); return c.folded(square(c.filter) * s, c.bias * 2 * s + (c.beta - c.mean * s)); })))
      << "what variables alone decide";
  EXPECT_SAME_GRAPH(for_comparison(fold_norms(channels([](Channels c) { return relu(batch_norm(conv2d(c.x, c.filter), {}, {}, c.mean, square(c.mean))); }))),
                    for_comparison(channels([&](Channels c) { Value s = 1 / c.deviation(); return relu(conv2d(c.x, c.filter * s) + -(c.mean * s)); })));
}

TEST(FoldNorms, leaves_what_others_read_or_the_step_decides) {
  for (const std::function<Value(Channels)>& build : std::vector<std::function<Value(Channels)>>{
           [](Channels c) { Value y = conv2d(c.x, c.filter); c.b.output(y); return c.norm(y); },
           [](Channels c) { Value y = conv2d(c.x, c.filter); return c.norm(y) + softmax(y); },
           [](Channels c) { Value y = conv2d(c.x, c.filter) + c.bias; return c.norm(y) + softmax(y); },
           [](Channels c) { return c.norm(conv2d(c.x, c.filter) + c.drawn("places", {4, 8})); },
           [](Channels c) { return c.norm(conv2d(c.x, c.b.input("f", f32, {3, 3, 4, 8}))); },
           [](Channels c) { return c.norm(conv2d(c.x, c.filter) + c.b.input("row", f32, {8})); },
           [](Channels c) { return relu(batch_norm(conv2d(c.x, c.filter), c.b.input("g", f32, {8}), c.beta, c.mean, c.mean)); },
           [](Channels c) { return c.norm(conv2d(square(c.drawn("picture", {1, 6, 6, 4})), c.filter)); },
           [](Channels c) { return c.norm(max_pool2d(conv2d(c.x, c.filter), {.window = {2, 2}})); },
           [](Channels c) { Value y = conv2d(c.x, c.filter); auto on = c.b.device("cpu:1"); return c.norm(y); }}) {
    const Graph g = channels(build);
    EXPECT_SAME_GRAPH(fold_norms(g), g);
  }
}

TEST(FoldNorms, gives_what_the_graph_gave) {
  const Graph g = channels([](Channels c) {
    Value y = c.norm(conv2d(c.x, c.filter, {.strides = {2, 1}, .padding = "same"}) + c.bias);
    return softmax(batch_norm(depthwise_conv2d(y, c.drawn("each", {2, 2, 8, 1})), c.gamma, {}, c.mean, square(c.beta)));
  });
  const Graph plain = for_inference(g), folded = for_serving(g);
  EXPECT_EQ(std::count_if(folded.nodes().begin(), folded.nodes().end(), [](const Node& n) { return n.op->name == "add" && n.types[0].shape.size() == 4; }), 2);
  auto run = [&](const Graph& of) { return run_whole(of, feeds_for(g, 3), state_for(g), 3, {{"y", of.outputs[0]}}).fetched; };
  EXPECT_LT(difference(run(folded), run(plain)), 1e-4);
  EXPECT_FALSE(same_bits(run(folded), run(plain))) << "of other products";
}

}  // namespace
}  // namespace belfry::test
