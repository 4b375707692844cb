// Biases before batch norms, and sums of what norms give back, that training does not compute.
#include <algorithm>
#include <functional>

#include <belfry/belfry.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/expand.h>

#include "graphs.h"
#include "interpreter.h"
#include "nets.h"

namespace belfry::test {
namespace {

int count(const Graph& g, const std::string& op, const std::string& of = "") {
  return static_cast<int>(std::count_if(g.nodes().begin(), g.nodes().end(), [&](const Node& n) { return n.op->name == op && (of.empty() || g.node(n.inputs[0].node).op->name == of); }));
}

/// A convolution with a bias, a norm with running statistics, and what `more` puts beside them.
struct Normed {
  Builder& b;
  Value x, filter, bias, sum, y;
};
Graph normed(DType t, const std::function<void(Normed&)>& more = {}, const std::function<Value(Normed&)>& shifted = {}) {
  Builder b("net");
  auto drawn = [&](const char* name, Shape shape) { return b.variable(name, std::move(shape), {.dtype = t, .init = "uniform", .init_value = 0.5}); };
  Normed n{b, b.input("x", t, {kBatch, 4, 4, 2}), drawn("filter", {3, 3, 2, 6}), drawn("bias", {6}), {}, {}};
  n.sum = shifted ? shifted(n) : conv2d(n.x, n.filter) + n.bias;
  n.y = nn::batch_norm(n.sum, {.name = "bn"});
  if (more) more(n);
  b.metric("top", identity(relu(n.y), "top"));
  const Value logits = nn::dense(flatten(relu(n.y)), {.units = 5, .name = "out"});
  b.minimize(mean(sparse_softmax_cross_entropy(logits, b.input("label", i32, {kBatch}))), Momentum{.learning_rate = 0.1, .weight_decay = 0.01}, {.clip_norm = 1.0});
  return std::move(b).build();
}
Graph plain(const Graph& g) { return run_passes(training_passes(), g, {.disabled = {"drop_shifts"}}); }
Graph dropped(const Graph& g) { return run_passes(training_passes(), g); }

TEST(DropShifts, takes_the_bias_before_a_norm_and_the_sum_behind_its_gradient) {
  const Graph g = normed(f32), before = plain(g), after = dropped(g);
  EXPECT_EQ(count(before, "add", "conv2d"), 1);
  EXPECT_EQ(count(before, "reduce_sum", "batch_norm_gradient"), 1);
  EXPECT_EQ(count(after, "add", "conv2d"), 0);
  EXPECT_EQ(count(after, "reduce_sum", "batch_norm_gradient"), 0);
  EXPECT_EQ(count(after, "batch_norm", "conv2d"), 1);
  EXPECT_EQ(count(after, "batch_norm_gradient", "conv2d"), 1);
  EXPECT_EQ(count(after, "add", "tower_mean"), 1) << "the running mean has the bias";
  EXPECT_EQ(after.size(), before.size()) << "an addition goes, one comes; zeros for a sum";
  EXPECT_SAME_GRAPH(drop_shifts(after), after);
  // The mean by its old name would be another value.
  EXPECT_EQ(g.type(g.at("bn/batch_norm")), after.type(after.at("bn/batch_norm")));
  EXPECT_EQ(after.find("bn/batch_norm:1"), std::nullopt);
}

TEST(DropShifts, needs_no_bias_for_the_sum_and_no_gradient_for_the_bias) {
  const Graph summed = dropped(normed(f32, [](Normed& n) { n.b.update(n.b.variable("slot", {6}, {.trainable = false}), square(reduce_sum(emit("batch_norm_gradient", {n.sum, {}, {}, n.y.output(1), n.y.output(2), square(n.y)}, {}, {}), {.axes = {0, 1, 2}}))); },
                                      [](Normed& n) { return conv2d(n.x, n.filter); }));
  EXPECT_EQ(count(summed, "reduce_sum", "batch_norm_gradient"), 0);
  const Graph forward = dropped(without_training(normed(f32)));
  EXPECT_EQ(count(forward, "batch_norm", "conv2d"), 1);
}

TEST(DropShifts, keeps_values_gradients_and_state_on_any_number_of_towers) {
  for (auto [t, most] : {std::pair{f64, 1e-8}, {f32, 1e-2}}) {
    const Graph g = normed(t), before = plain(g), after = dropped(g);
    auto run = [&](const Graph& of, int towers) {
      std::vector<std::pair<std::string, ValueId>> fetches = fetches_of(of);
      fetches.emplace_back("loss", of.losses.at(0));
      if (towers == 0) return run_whole(of, feeds_for(g, 7), state_for(before), 7, fetches);
      return run_towers(expand(std::make_shared<const Graph>(of), {.towers = towers, .batch = 7, .fetches = fetches}), feeds_for(g, 7), state_for(before));
    };
    for (int towers : {0, 1, 3}) {
      Result want = run(before, towers), got = run(after, towers);
      EXPECT_EQ(got.fetched.at("gradient of bias"), HostTensor(t, {6})) << "zeros";
      for (Result* r : {&want, &got}) r->fetched.erase("gradient of bias"), r->state.erase("momentum/bias");
      ASSERT_GE(got.fetched.size(), 7u);
      EXPECT_TRUE(got.state.contains("bn/moving_mean"));
      EXPECT_LT(difference(got.fetched, want.fetched), most) << name_of(t) << ", towers " << towers;
      EXPECT_LT(difference(got.state, want.state), most) << name_of(t) << ", towers " << towers;
      EXPECT_FALSE(same_bits(got.fetched, want.fetched));
    }
  }
}

/// A step's plan is all that inference from it has: its norms know the bias that x lacks.
TEST(DropShifts, leaves_inference_its_running_statistics) {
  const Graph g = normed(f64), after = dropped(g);
  auto top = [&](const Graph& of) { return run_whole(of, feeds_for(g, 3), state_for(g), 3, {{"top", of.at("top")}}).fetched; };
  const Tensors want = top(for_inference(g, {"top"}));
  EXPECT_LT(difference(top(for_inference(after, {"top"})), want), 1e-10);
  EXPECT_LT(difference(top(for_serving(after, {"top"})), want), 1e-10);
  EXPECT_EQ(count(for_serving(after, {"top"}), "add", "conv2d"), 1) << "folded";
}

TEST(DropShifts, joins_before_it_adds_the_bias) {
  const Graph after = dropped(normed(f32));
  const TowerGraph towers = expand(std::make_shared<const Graph>(after), {.towers = 3, .batch = 7});
  int added = 0;
  for (const PlanNode& n : towers.nodes)
    if (n.op == "add" && after.node(n.user).types[0].shape == Shape{6}) {
      EXPECT_EQ(n.scope, Scope::shared) << n.name;
      ++added;
    }
  EXPECT_EQ(added, 3) << "of the bias, and of both running statistics";
}

TEST(DropShifts, leaves_what_others_read_or_ask_for_or_the_step_decides) {
  const Dim c = 6;
  struct Case {
    const char* what;
    Graph g;
  };
  for (const Case& k : {Case{"read besides", normed(f32, [](Normed& n) { n.y = n.y + n.sum; })}, Case{"asked for", normed(f32, [](Normed& n) { n.b.metric("sum", n.sum); })},
                        Case{"y is asked for", normed(f32, [](Normed& n) { n.b.metric("y", n.y); })},
                        Case{"its mean is asked for", normed(f32, [](Normed& n) { n.b.metric("mean", n.y.output(1)); })},
                        Case{"elsewhere", normed(f32, {}, [](Normed& n) { Value conv = conv2d(n.x, n.filter); auto on = n.b.device("cpu:1"); return conv + n.bias; })},
                        Case{"a bias of places", normed(f32, {}, [&](Normed& n) { return conv2d(n.x, n.filter) + n.b.variable("places", {2, c}); })},
                        Case{"a bias of a feed", normed(f32, {}, [&](Normed& n) { return conv2d(n.x, n.filter) + n.b.input("row", f32, {c}); })},
                        Case{"two norms", normed(f32, [](Normed& n) { n.y = n.y + nn::batch_norm(n.sum, {.name = "second"}); })},
                        Case{"frozen", normed(f32, [](Normed& n) { n.y = nn::batch_norm(n.sum, {.trainable = false}); })}}) {
    const Graph before = plain(k.g), after = dropped(k.g);
    EXPECT_EQ(count(after, "add", "conv2d"), count(before, "add", "conv2d")) << k.what;
    EXPECT_EQ(count(after, "batch_norm", "conv2d"), 0) << k.what;
  }
  // Sums that are asked for, over other axes, or of a gradient by others' statistics.
  for (const std::function<void(Normed&)>& more : std::vector<std::function<void(Normed&)>>{
           [](Normed& n) { n.b.metric("sum", reduce_sum(emit("batch_norm_gradient", {n.sum, {}, {}, n.y.output(1), n.y.output(2), n.sum}, {}, {}), {.axes = {0, 1, 2}})); },
           [](Normed& n) { n.b.metric("sum", square(reduce_sum(emit("batch_norm_gradient", {n.sum, {}, {}, n.y.output(1), n.y.output(2), n.sum}, {}, {}), {.axes = {0, 2}}))); },
           [](Normed& n) { n.b.metric("sum", square(reduce_sum(emit("batch_norm_gradient", {n.sum, {}, {}, n.y.output(2), n.y.output(1), n.sum}, {}, {}), {.axes = {0, 1, 2}}))); },
           [](Normed& n) { n.b.metric("sum", square(reduce_sum(emit("batch_norm_gradient", {n.y, {}, {}, n.y.output(1), n.y.output(2), n.sum}, {}, {}), {.axes = {0, 1, 2}}))); },
           [](Normed& n) { n.b.metric("sum", square(reduce_sum(emit("batch_norm_gradient", {n.sum, {}, {}, n.y.output(1), n.y.output(2), n.sum}, {}, {}).output(1), {.axes = {0}}))); }}) {
    const Graph g = normed(f32, more), before = plain(g), after = dropped(g);
    EXPECT_EQ(count(before, "reduce_sum", "batch_norm_gradient"), 2);
    EXPECT_EQ(count(after, "reduce_sum", "batch_norm_gradient"), 1);
  }
}

}  // namespace
}  // namespace belfry::test
