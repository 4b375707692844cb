// Mixed precision from the graph to its files: what the pass makes of a net, its bits on any devices, and the scale of the loss. Rounding that the caller has set.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <belfry/belfry.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/text.h>
#include <belfry/ops/passes/passes.h>

#include "nets.h"
#include "ran_as_planned.h"
#include "says.h"

namespace belfry::test {
namespace {

/// Convolution, batch norm, pool, dense: what follows halves, what stays f32, and what is summed over rows.
Graph small_net(DType precision, const MinimizeOptions& options = {}) {
  Builder b("small");
  b.precision(precision);
  Value image = b.input("image", f32, {kBatch, 8, 8, 3}), label = b.input("label", i32, {kBatch});
  Value x = nn::conv2d(image, {.filters = 8, .kernel = 3, .activation = Activation::relu, .name = "first"});
  x = relu(nn::batch_norm(nn::conv2d(x, {.filters = 8, .kernel = 3, .name = "second"}), {.name = "norm"}));
  Value logits = identity(nn::dense(flatten(max_pool2d(x, {.window = {2, 2}})), {.units = 5, .name = "head"}), "logits");
  Value loss = identity(mean(sparse_softmax_cross_entropy(logits, label)), "loss");
  b.metric("accuracy", mean(equal(argmax(logits), label)));
  b.output(logits);
  b.minimize(loss, Momentum{.learning_rate = 0.05}, options);
  return std::move(b).build();
}

std::map<std::string, HostTensor> pictures(std::int64_t n, std::uint64_t seed, double scale = 1) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  HostTensor image(f32, {n, 8, 8, 3}), label(i32, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    auto k = label.data<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(rng() % 5);
    for (std::int64_t j = 0; j < 192; ++j) image.data<float>()[static_cast<std::size_t>(i * 192 + j)] = static_cast<float>(scale) * (normal(rng) + (j % 5 == k ? 1.5f : 0.0f));
  }
  return {{"image", image}, {"label", label}};
}

DType dtype_of_value(const Graph& g, const std::string& name) { return g.type(g.at(name)).dtype; }

TEST(MixedPrecision, lowers_products_and_what_follows_and_leaves_the_rest) {
  const Graph g = run_passes(training_passes(), small_net(bf16));
  for (const Node& n : g.nodes()) {
    if (n.op->precision != Precision::low) continue;
    EXPECT_EQ(g.type(n.inputs[0]).dtype, bf16) << n.name;
    EXPECT_EQ(g.type(n.inputs[1]).dtype, bf16) << n.name;
  }
  for (const auto& [variable, update] : g.updates) {
    EXPECT_FALSE(is_half(g.type(update).dtype));
    int casts = 0;  // forward and backward read one
    for (NodeId r : g.readers(variable)) casts += g.node(r).op->name == "cast" && is_half(g.node(r).types[0].dtype);
    EXPECT_LE(casts, 1) << g.node(variable).name;
    const Node& n = g.node(update.node);
    for (ValueId v : n.inputs) EXPECT_FALSE(v.valid() && is_half(g.type(v).dtype)) << n.name;
  }
  // Gradients of variables come out as they are summed: none was rounded on its way.
  for (const Node& n : g.nodes()) EXPECT_FALSE(n.op->name == "cast" && n.types[0].dtype == f32 && g.node(n.inputs[0].node).op->precision == Precision::low) << n.name;
  EXPECT_EQ(dtype_of_value(g, "loss"), f32);
  EXPECT_EQ(dtype_of_value(g, "logits"), f32);
  std::map<std::string, DType> of_op;
  for (const Node& n : g.nodes()) of_op[n.op->name] = n.types[0].dtype;
  for (const char* op : {"relu", "max_pool2d", "batch_norm", "relu_gradient", "max_pool2d_gradient", "conv2d_input_gradient"}) EXPECT_EQ(of_op.at(op), bf16) << op;
  for (const char* op : {"reduce_sum", "conv2d_filter_gradient", "momentum"}) EXPECT_EQ(of_op.at(op), f32) << op;
  EXPECT_EQ(write_graph(mixed_precision(g)), write_graph(g)) << "a second time";
  EXPECT_EQ(dtype_of_value(run_passes(inference_passes(), for_serving(small_net(bf16), {"logits"})), "logits"), f32);
}

/// x + head(norm(x)) of f32: the norm's reader wants halves, and what comes back is one.
Graph norm_net(bool asked = false, bool read = false) {
  Builder b("norms");
  b.precision(bf16);
  Value x = b.input("x", f32, {kBatch, 4, 8}) * b.variable("scale", {8}, {.init = "ones"});
  Value y = nn::layer_norm(x, {.name = "norm"});
  if (asked) b.output(y);
  Value z = (read ? y : x) + nn::dense(y, {.units = 8, .name = "head"});
  b.minimize(mean(square(z)), Sgd{});
  return std::move(b).build();
}

TEST(MixedPrecision, norms_of_f32_round_for_products_and_their_gradients_read_halves) {
  const Graph g = run_passes(training_passes(), norm_net());
  const Node &norm = g.node(g.at("norm/layer_norm").node), &gradient = g.node(g.at("gradient/norm/layer_norm/layer_norm_gradient").node), &product = g.node(g.at("head/matmul").node);
  EXPECT_EQ(g.type(norm.inputs[0]).dtype, f32);
  EXPECT_EQ(norm.types[0].dtype, bf16);
  EXPECT_EQ(norm.types[1].dtype, f32);
  EXPECT_EQ(g.type(gradient.inputs[0]).dtype, f32);
  EXPECT_EQ(g.type(gradient.inputs[3]).dtype, bf16);
  EXPECT_EQ(gradient.types[0].dtype, f32);
  for (const Node& n : g.nodes()) EXPECT_FALSE(n.op->name == "cast" && (n.inputs[0] == g.at("norm/layer_norm") || &g.node(n.inputs[0].node) == &gradient)) << n.name;
  // What is added to f32 is not rounded before.
  EXPECT_EQ(g.type(product.inputs[0]).dtype, bf16);
  EXPECT_EQ(product.types[0].dtype, f32);
  EXPECT_EQ(dtype_of_value(g, "head/bias_add"), f32);
  EXPECT_EQ(write_graph(mixed_precision(g)), write_graph(g)) << "a second time";
  EXPECT_EQ(write_graph(read_graph(write_graph(g), "again.json", g.shared_ops())), write_graph(g));
}

TEST(MixedPrecision, norms_that_others_read_stay_in_f32) {
  EXPECT_EQ(dtype_of_value(run_passes(training_passes(), norm_net(true)), "norm/layer_norm"), f32);
  EXPECT_EQ(dtype_of_value(run_passes(training_passes(), norm_net(false, true)), "norm/layer_norm"), f32);
}

TEST(MixedPrecision, outputs_keep_their_names_and_types) {
  Builder b("asked");
  b.precision(f16);
  Value x = b.input("x", f32, {kBatch, 4}), w = b.variable("w", {4, 4});
  Value hidden = relu(matmul(x, w));
  b.output(identity(hidden, "hidden"));
  b.output(identity(matmul(hidden, w), "top"));
  const Graph g = run_passes(inference_passes(), std::move(b).build());
  for (ValueId v : g.outputs) EXPECT_EQ(g.type(v).dtype, f32) << g.name_of(v);
  EXPECT_EQ(g.name_of(g.outputs[0]), "hidden");
  EXPECT_EQ(dtype_of_value(g, "hidden"), f32);
}

State trained(Session& session, int steps) {
  session.set_trace(true);
  for (int k = 0; k < steps; ++k) {
    session.step(pictures(7, static_cast<std::uint64_t>(k)));
    EXPECT_RAN_AS_PLANNED(session);
  }
  return session.state();
}

TEST(MixedPrecision, the_same_towers_give_the_same_bits_on_any_devices) {
  const Graph graph = small_net(bf16);
  Session one(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 2, .threads = 1});
  const State want = trained(one, 3);
  for (const char* devices : {"cpu:0,cpu:1", "sim:0-1"}) {
    Session two(graph, Towers{.devices = parse_devices(devices), .towers = 2, .threads = 1});
    EXPECT_EQ(trained(two, 3), want) << devices;
    Session mirrored(graph, Mirrored{.devices = parse_devices(devices), .towers = 2, .threads = 1});
    EXPECT_EQ(trained(mirrored, 3), want) << "mirrored on " << devices;
    EXPECT_EQ(two.plan(7).arithmetic_hash, one.plan(7).arithmetic_hash);
  }
  Session full(small_net(f32), Towers{.devices = parse_devices("cpu:0"), .towers = 2, .threads = 1});
  EXPECT_NE(full.plan(7).arithmetic_hash, one.plan(7).arithmetic_hash);
  EXPECT_FALSE(trained(full, 3) == want);
}

TEST(MixedPrecision, losses_stay_near_those_of_f32) {
  auto losses = [](DType precision) {
    Session session(small_net(precision), Single{.threads = 1});
    std::vector<float> out;
    for (int k = 0; k < 16; ++k) out.push_back(session.step(pictures(16, static_cast<std::uint64_t>(k)))["loss"].item<float>());
    return out;
  };
  const std::vector<float> full = losses(f32), brain = losses(bf16), half = losses(f16);
  for (std::size_t k = 0; k < full.size(); ++k) {
    EXPECT_NEAR(brain[k], full[k], 0.15 * full[0]) << "step " << k;
    EXPECT_NEAR(half[k], full[k], 0.05 * full[0]) << "step " << k;
  }
  EXPECT_NEAR(brain[0], full[0], 0.02 * full[0]);
  EXPECT_NEAR(half[0], full[0], 0.002 * full[0]);
  EXPECT_LT(full.back(), 0.7f * full[0]);
  EXPECT_LT(brain.back(), 0.7f * full[0]);
  EXPECT_LT(half.back(), 0.7f * full[0]);
}

/// It is for GPUs: a CPU multiplies f32 as f32.
TEST(Tf32, changes_nothing_on_cpus) {
  auto plan_of = [](const GraphPrecision& p) {
    Graph graph = small_net(f32);
    graph.precision = p;
    return Session(std::move(graph), Single{.threads = 1}).plan(7);
  };
  const PlacedGraph rounding = plan_of(tf32), plain = plan_of(f32);
  EXPECT_EQ(rounding.arithmetic_hash, plain.arithmetic_hash);
  EXPECT_NE(describe(rounding, {}).find("GPUs may round f32 to TF32"), std::string::npos);
  EXPECT_EQ(describe(plain, {}).find("TF32"), std::string::npos);
}

TEST(MixedPrecision, stands_in_graph_files_and_plans) {
  const Graph graph = small_net(bf16);
  const std::string text = write_graph(graph);
  EXPECT_NE(text.find("\"precision\": \"bf16\""), text.npos);
  const Graph again = read_graph(text, "small.json", graph.shared_ops());
  EXPECT_EQ(again.precision, bf16);
  EXPECT_EQ(write_graph(again), text);
  std::string wrong = text;
  wrong.replace(wrong.find("\"bf16\""), 6, "\"f64\"");
  EXPECT_TRUE(says([&] { read_graph(wrong, "small.json", graph.shared_ops()); }, {"/precision", "f32, tf32, bf16 or f16, not f64"}));

  for (const GraphPrecision& p : {GraphPrecision(f32), tf32, GraphPrecision(f16)}) {
    Graph other = graph;
    other.precision = p;
    EXPECT_EQ(read_graph(write_graph(other), "small.json", graph.shared_ops()).precision, p) << name_of(p);
    EXPECT_EQ(to_text(other).find(fmt::format("precision {}\n", name_of(p))) != text.npos, p != f32);
  }

  Session session(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 2, .threads = 1});
  const PlacedGraph& plan = session.plan(7);
  const std::string written = write_plan(plan);
  auto read = std::make_shared<const PlacedGraph>(read_plan(written, "plan.json", graph.shared_ops()));
  EXPECT_EQ(write_plan(*read), written);
  Session from_file = Session::from_plan(read);
  EXPECT_EQ(trained(from_file, 2), trained(session, 2));
  EXPECT_EQ(from_file.predict(pictures(3, 9), {"logits"})["logits"], session.predict(pictures(3, 9), {"logits"})["logits"]);
}

TEST(MixedPrecision, a_sum_over_towers_is_never_one_of_halves) {
  Builder b("by_hand");
  Value x = cast(b.input("x", f32, {kBatch, 4}), bf16), y = cast(b.input("y", f32, {kBatch, 3}), bf16);
  b.output(identity(contract("bi,bo->io", x, y), "sum"));
  const Graph graph = std::move(b).build();
  const auto feeds = feeds_for(graph, 5);
  Session one(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 1}), three(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 3});
  const HostTensor sum = one.run(feeds)["sum"];
  EXPECT_EQ(sum.dtype(), bf16);
  EXPECT_EQ(three.run(feeds)["sum"], sum);
}

/// What a user casts by hand is differentiated in f32, and rounded where it meets what was cast.
TEST(MixedPrecision, has_gradients_where_casts_were_put_by_hand) {
  auto net = [](DType by_hand) {
    Builder b("by_hand");
    Value x = b.input("x", f32, {kBatch, 4}), w = b.variable("w", {4, 6}, {.init = "glorot_uniform"}), bias = b.variable("bias", {6}, {.init = "uniform", .init_value = 0.5});
    Value h = tanh(matmul(cast(x, by_hand), cast(w, by_hand)) + cast(bias, by_hand));
    Value top = reduce_max(h, {.axes = {1}});  // f32: it is not rounded again
    b.minimize(mean(square(cast(top, f32)) + reduce_mean(cast(h * h, f32), {.axes = {1}})), Sgd{});
    return std::move(b).build();
  };
  const auto feeds = feeds_for(net(f32), 6);
  auto gradient = [&](DType by_hand) { return Session(net(by_hand), Single{.threads = 1}).run(feeds, {"gradient/w", "gradient/bias"}); };
  Results wanted = gradient(f32), got = gradient(f16);
  for (const char* name : {"gradient/w", "gradient/bias"}) {
    ASSERT_EQ(got[name].type(), wanted[name].type());
    EXPECT_FALSE(got[name] == wanted[name]);
    for (std::size_t i = 0; i < wanted[name].data<float>().size(); ++i) EXPECT_NEAR(got[name].data<float>()[i], wanted[name].data<float>()[i], 0.01) << name;
  }
}

TEST(MixedPrecision, is_one_of_three) {
  Builder b("wrong");
  EXPECT_TRUE(says([&] { b.precision(f64); }, {"f32, tf32, bf16 or f16, not f64"}));
}

// ---------------------------------------------------------------- the scale of the loss

TEST(LossScale, a_power_of_two_changes_no_bit_of_f32) {
  Session plain(small_net(f32), Single{.threads = 1}), scaled(small_net(f32, {.loss_scale = 1024}), Single{.threads = 1});
  EXPECT_EQ(trained(scaled, 3), trained(plain, 3));
  EXPECT_EQ(scaled.step(pictures(7, 5))["loss"], plain.step(pictures(7, 5))["loss"]);
}

TEST(LossScale, skips_steps_of_infinite_gradients_and_recovers) {
  constexpr float kTooLarge = 0x1p30f;
  Session session(small_net(f16, {.loss_scale = kTooLarge, .loss_scale_steps = 3}), Single{.threads = 1}), plain(small_net(f16, {.loss_scale = 1}), Single{.threads = 1});
  auto scale = [&] { return session.variable("loss_scale").item<float>(); };
  auto good = [&] { return session.variable("loss_scale/good_steps").item<std::int64_t>(); };
  auto steps = [&] { return session.variable("step").item<std::int64_t>(); };
  const State before = session.state();
  EXPECT_EQ(session.step(pictures(7, 0))["loss"], plain.step(pictures(7, 0))["loss"]) << "what is fetched is not scaled";
  EXPECT_EQ(scale(), kTooLarge / 2);
  State after = session.state();
  for (const auto& [name, value] : before) EXPECT_TRUE(name.starts_with("loss_scale") || after.at(name) == value) << name;
  int tries = 1;
  for (; tries < 30 && steps() == 0; ++tries) session.step(pictures(7, 0));
  ASSERT_EQ(steps(), 1);
  EXPECT_EQ(scale(), std::ldexp(kTooLarge, 1 - tries));
  EXPECT_EQ(good(), 1);
  const float found = scale();
  // A picture that is infinite in f16 spoils the loss itself: that step is skipped too, and the count begins anew.
  EXPECT_FALSE(std::isfinite(session.step(pictures(7, 1, 1e6))["loss"].item<float>()));
  EXPECT_EQ(scale(), found / 2);
  EXPECT_EQ(good(), 0);
  for (int k = 0; k < 3; ++k) EXPECT_TRUE(std::isfinite(session.step(pictures(7, static_cast<std::uint64_t>(k)))["loss"].item<float>()));
  EXPECT_EQ(scale(), found);
  EXPECT_EQ(steps(), 4);
}

TEST(LossScale, comes_with_f16_and_stands_in_checkpoints) {
  Session session(small_net(f16), Single{.threads = 1});
  EXPECT_EQ(session.variable("loss_scale").item<float>(), 32768);
  trained(session, 2);
  Checkpoint kept = Checkpoint::of(session);
  Session other(small_net(f16), Single{.threads = 1});
  kept.restore(other);
  EXPECT_EQ(other.variable("loss_scale/good_steps").item<std::int64_t>(), 2);
  EXPECT_EQ(trained(other, 2), trained(session, 2));
  EXPECT_TRUE(says([] { small_net(f16, {.loss_scale_steps = 5}); }, {"loss_scale_steps says nothing without a loss_scale"}));
}

// ---------------------------------------------------------------- the caller's own arithmetic

constexpr unsigned kFlushes = 0x8040;  // of MXCSR: what is computed below the normal numbers is 0, and what is read there counts as 0

/// Sets a program's arithmetic, and puts back the test's.
class Set {
 public:
  explicit Set(int rounding, unsigned flushes = 0) {
    std::fesetround(rounding);
    _mm_setcsr(_mm_getcsr() | flushes);
  }
  ~Set() {
    std::fesetround(FE_TONEAREST);
    _mm_setcsr(_mm_getcsr() & ~kFlushes);
  }
  Set(const Set&) = delete;
};

/// A net that is trained on threads of OpenMP, and a variable that halves below the normal numbers.
Graph sensitive_net() {
  Builder b("sensitive");
  Value x = b.input("x", f32, {kBatch, 32});
  Value tiny = b.variable("tiny", {4}, {.init = "constant", .init_value = 2e-38, .trainable = false});
  b.update(tiny, tiny * 0.5);
  Value y = nn::dense(nn::dense(x, {.units = 700, .activation = Activation::relu}), {.units = 3});
  b.metric("third", mean(y) * (constant(b.graph(), HostTensor::scalar(1.0f)) / constant(b.graph(), HostTensor::scalar(3.0f))));
  b.minimize(identity(mean(square(y - 1.0)), "loss"), Adam{.learning_rate = 0.01});
  return std::move(b).build();
}

TEST(CallersArithmetic, is_no_part_of_what_files_say) {
  const Graph graph = sensitive_net();
  Session session(graph, Single{.threads = 1}, {.cores = 1});
  const std::string text = write_graph(graph), planned = write_plan(session.plan(8, Mode::step, {"loss"}));
  for (int rounding : {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO}) {
    auto read = [&](auto reader, const std::string& from) {
      const Set set(rounding);
      auto out = reader(from, "file.json", graph.shared_ops());
      EXPECT_EQ(std::fegetround(), rounding);
      return out;
    };
    EXPECT_EQ(write_graph(read([](auto&&... a) { return read_graph(a...); }, text)), text);
    EXPECT_EQ(write_plan(read([](auto&&... a) { return read_plan(a...); }, planned)), planned);
  }
}

TEST(CallersArithmetic, is_no_part_of_a_sessions) {
  const Graph graph = sensitive_net();
  std::mt19937_64 rng(3);
  std::normal_distribution<float> normal;
  DataSet data;
  HostTensor x(f32, {200, 32});
  for (float& v : x.data<float>()) v = normal(rng);
  data.columns.emplace("x", std::move(x));
  struct Trained {
    State state;
    std::vector<Metrics> metrics;
    bool operator==(const Trained&) const = default;
  };
  auto trained = [&](int rounding, unsigned flushes) {
    const Set set(rounding, flushes);
    Session session(graph, Single{.threads = 2}, {.cores = 2});
    Trained out;
    for (const EpochResult& e : fit(session, data, {.batch = 64, .epochs = 2})) out.metrics.push_back(e.metrics);
    session.step(data.columns);
    out.metrics.push_back(evaluate(session, data));
    out.state = session.state();
    EXPECT_EQ(std::fegetround(), rounding);
    EXPECT_EQ(_mm_getcsr() & kFlushes, flushes);
    return out;
  };
  const Trained want = trained(FE_TONEAREST, 0);
  EXPECT_NE(want.state.at("tiny").data<float>()[0], 0);
  EXPECT_LT(want.state.at("tiny").data<float>()[0], std::numeric_limits<float>::min());
  EXPECT_TRUE(trained(FE_UPWARD, 0) == want);
  EXPECT_TRUE(trained(FE_TOWARDZERO, 0) == want);
  EXPECT_TRUE(trained(FE_TONEAREST, kFlushes) == want);
  EXPECT_TRUE(trained(FE_DOWNWARD, kFlushes) == want);
}

}  // namespace
}  // namespace belfry::test
