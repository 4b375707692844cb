// Gradients of relu and relu6 that become part of those of batch norms.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>

#include <belfry/belfry.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/expand.h>

#include "graphs.h"
#include "interpreter.h"
#include "nets.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// What the gradients of a graph's norms are behind.
std::vector<std::string> activations(const Graph& g) {
  std::vector<std::string> out;
  for (const Node& n : g.nodes())
    if (n.op->name == "batch_norm_gradient") out.push_back(n.attributes.text(kActivation));
  return out;
}
bool has_op(const Graph& g, const std::string& op) { return std::any_of(g.nodes().begin(), g.nodes().end(), [&](const Node& n) { return n.op->name == op; }); }
Graph with_slopes(const Graph& g) { return run_passes(training_passes(), g, {.disabled = {"fold_slopes"}}); }
Graph without_slopes(const Graph& g) { return run_passes(training_passes(), g); }

/// A convolution, a norm, and what `bend` makes of its y.
Graph bent_norm(DType t, const std::function<Value(Builder&, Value x, Value y)>& bend, const BatchNormOptions& options = {}) {
  Builder b("net");
  auto drawn = [&](const char* name, Shape shape, double most) { return b.variable(name, std::move(shape), {.dtype = t, .init = "uniform", .init_value = most}); };
  const Value x = conv2d(b.input("x", t, {kBatch, 4, 4, 2}), drawn("filter", {3, 3, 2, 6}, 0.5));
  auto fixed = [&](const char* name) { return b.variable(name, {6}, {.dtype = t, .trainable = false}); };
  const Value y = batch_norm(x + drawn("bias", {6}, 1), drawn("gamma", {6}, 4) + 3, drawn("beta", {6}, 6), fixed("mean"), fixed("variance"), options);
  b.minimize(mean(square(bend(b, x, y))), Momentum{.learning_rate = 0.1});
  return std::move(b).build();
}

TEST(FoldSlopes, leaves_no_slope_between_a_norm_and_its_activation) {
  for (bool six : {false, true}) {
    const Graph g = bent_norm(f32, [&](Builder&, Value, Value y) { return six ? relu6(y) : relu(y); }), before = with_slopes(g), after = without_slopes(g);
    const std::string op = six ? "relu6" : "relu";
    EXPECT_THAT(activations(before), ElementsAre("none"));
    EXPECT_TRUE(has_op(before, op + "_gradient"));
    EXPECT_THAT(activations(after), ElementsAre(op));
    EXPECT_FALSE(has_op(after, op + "_gradient"));
    EXPECT_EQ(after.size() + 1, before.size());
    EXPECT_SAME_GRAPH(fold_slopes(after), after);
  }
}

/// As halves dx alone is rounded; a bias before the norm is dropped besides.
TEST(FoldSlopes, goes_with_halves_and_dropped_biases) {
  Graph g = bent_norm(f32, [](Builder&, Value, Value y) { return relu6(y); });
  g.precision = bf16;
  const Graph after = without_slopes(g);
  const auto n = std::find_if(after.nodes().begin(), after.nodes().end(), [](const Node& m) { return m.op->name == "batch_norm_gradient"; });
  ASSERT_NE(n, after.nodes().end());
  EXPECT_EQ(n->attributes.text(kActivation), "relu6");
  EXPECT_EQ(after.node(n->inputs[0].node).op->name, "conv2d");
  EXPECT_EQ(after.type(n->inputs[0]).dtype, bf16);
  EXPECT_EQ(after.type(n->inputs[2]).dtype, f32);
  EXPECT_EQ(n->types[0].dtype, bf16);
  EXPECT_EQ(n->types[1].dtype, f32);
}

TEST(FoldSlopes, keeps_gradients_and_state_on_any_number_of_towers) {
  for (auto [t, most] : {std::pair{f64, 1e-12}, {f32, 1e-5}})
    for (bool six : {false, true}) {
      const Graph g = bent_norm(t, [&](Builder&, Value, Value y) { return six ? relu6(y) : relu(y); }), before = with_slopes(g), after = without_slopes(g);
      auto run = [&](const Graph& of, int towers) {
        const auto fetches = fetches_of(of);
        if (towers == 0) return run_whole(of, feeds_for(g, 7), state_for(before), 7, fetches);
        return run_towers(expand(std::make_shared<const Graph>(of), {.towers = towers, .batch = 7, .fetches = fetches}), feeds_for(g, 7), state_for(before));
      };
      for (int towers : {0, 1, 3}) {
        const Result want = run(before, towers), got = run(after, towers);
        ASSERT_EQ(got.fetched.size(), 4u);
        EXPECT_LT(difference(got.fetched, want.fetched), most) << name_of(t) << ", towers " << towers << ", six " << six;
        EXPECT_LT(difference(got.state, want.state), most) << name_of(t) << ", towers " << towers << ", six " << six;
      }
    }
}

TEST(FoldSlopes, leaves_what_others_read_or_ask_for_or_what_is_behind_no_norm_alone) {
  const auto bent = [](Builder&, Value, Value y) { return relu(y); };
  EXPECT_THAT(activations(without_slopes(bent_norm(f32, [](Builder&, Value, Value y) { return tanh(y); }))), ElementsAre("none"));
  EXPECT_THAT(activations(without_slopes(bent_norm(f32, [](Builder&, Value, Value y) { return leaky_relu(y); }))), ElementsAre("none"));
  EXPECT_THAT(activations(without_slopes(bent_norm(f32, [](Builder&, Value x, Value y) { return relu(y + x); }))), ElementsAre("none")) << "of a sum";
  EXPECT_THAT(activations(without_slopes(bent_norm(f32, [](Builder&, Value, Value y) { return relu(y) + relu6(y); }))), ElementsAre("none")) << "two slopes";
  EXPECT_THAT(activations(without_slopes(bent_norm(f32, [](Builder& b, Value, Value y) { auto on = b.device("cpu:1"); return relu(y); }))), ElementsAre("none")) << "elsewhere";
  EXPECT_THAT(activations(without_slopes(bent_norm(f32, bent, {.sync = true}))), IsEmpty()) << "written out";
  // Others read the slope; or it is of the other norm; or the statistics are.
  for (const auto& make : std::vector<std::function<Value(Builder&, Value, Value, Value)>>{
           [](Builder& b, Value, Value, Value slope) { return b.output(slope), slope; }, [](Builder&, Value, Value other, Value slope) { return slope + 0 * other; },
           [](Builder& b, Value, Value, Value slope) { return b.output(tanh(slope)), slope; }}) {
    Builder b("net");
    const Value x = b.input("x", f32, {kBatch, 6}), row = b.input("row", f32, {6}), y = batch_norm(x, row, row, row, row), other = batch_norm(x, row, {}, row, row);
    const Value slope = emit("relu_gradient", {x, relu(y)}, {}, {});
    b.output(emit("batch_norm_gradient", {x, row, {}, y.output(1), y.output(2), make(b, y, other, slope)}, {}, {}));
    EXPECT_THAT(activations(fold_slopes(b.graph())), ElementsAre("none"));
  }
  auto by_hand = [](bool other_norm, bool other_statistics, bool other_gamma, double epsilon = 1e-3, Role role = Role::forward) {
    Builder b("net");
    const Value x = b.input("x", f32, {kBatch, 6}), row = b.input("row", f32, {6}), y = batch_norm(x, row, row, row, row), other = batch_norm(x, row, {}, row, row, {});
    const Value bent = relu(other_norm ? other : y);
    b.graph().cursor.role = role;
    const Value slope = emit("relu_gradient", {x, bent}, {}, {});
    b.graph().cursor.role = Role::forward;
    b.output(emit("batch_norm_gradient", {x, other_gamma ? x.graph->value(y.output(1).id) : row, {}, y.output(1), other_statistics ? y.output(1) : y.output(2), slope}, {{"epsilon", epsilon}}, {}));
    return activations(fold_slopes(b.graph()));
  };
  EXPECT_THAT(by_hand(false, false, false), ElementsAre("relu"));
  EXPECT_THAT(by_hand(true, false, false), ElementsAre("none"));
  EXPECT_THAT(by_hand(false, true, false), ElementsAre("none"));
  EXPECT_THAT(by_hand(false, false, true), ElementsAre("none"));
  EXPECT_THAT(by_hand(false, false, false, 0.5), ElementsAre("none"));
  EXPECT_THAT(by_hand(false, false, false, 1e-3, Role::backward), ElementsAre("none"));
}

/// At the edges, where there is no variance, and of what is no number, as the slopes that it stands for: none.
TEST(FoldSlopes, lets_nothing_through_at_edges) {
  Builder b("net");
  const Value x = b.input("x", f32, {kBatch, 4}), beta = b.input("beta", f32, {4}), zeros = b.input("zeros", f32, {4}), dy = b.input("dy", f32, {kBatch, 4});
  const Value y = batch_norm(x, {}, beta, zeros, zeros);
  b.output(relu6(y));
  b.output(emit("batch_norm_gradient", {x, {}, {}, y.output(1), y.output(2), emit("relu6_gradient", {dy, relu6(y)}, {}, {})}, {}, {}).output(2));
  const Graph g = std::move(b).build(), after = fold_slopes(g);
  ASSERT_THAT(activations(after), ElementsAre("relu6"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensors feeds = {{"x", HostTensor::of<float>({2, 4}, {7, 7, 7, nan, 7, 7, 7, nan})}, {"beta", HostTensor::of<float>({4}, {0, 6, 3, 1})}, {"zeros", HostTensor(f32, {4})}, {"dy", HostTensor::of<float>({2, 4}, {1, 1, 1, 1, 1, 1, 1, 1})}};
  for (const Graph& of : {g, after})
    EXPECT_EQ(run_whole(of, feeds, {}, 2, {{"dbeta", of.outputs.at(1)}}).fetched.at("dbeta"), HostTensor::of<float>({4}, {0, 0, 2, 0}));
}

}  // namespace
}  // namespace belfry::test
