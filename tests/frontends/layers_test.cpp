// Layers: their variables, and that they are what their formulas say.
#include <gtest/gtest.h>

#include <cmath>

#include <belfry/frontends/nn/attention.h>
#include <belfry/frontends/nn/layers.h>
#include <belfry/frontends/nn/norms.h>
#include <belfry/frontends/session/session.h>

#include "interpreter.h"
#include "nets.h"
#include "op_case.h"
#include "says.h"

namespace belfry::test {
namespace {

std::vector<std::string> variables_of(const Graph& g) {
  std::vector<std::string> out;
  for (NodeId id : g.variables()) out.push_back(g.node(id).name + " " + to_string(std::span(g.node(id).types[0].shape)) + (g.node(id).attributes.flag("trainable") ? "" : ", kept"));
  return out;
}

using Strings = std::vector<std::string>;

/// One step of a batch of four on two towers: (1, 2), (3, 7).
State after_a_step(const nn::BatchNormOptions& options) {
  Builder b("net");
  Value y = nn::batch_norm(b.input("x", f64, {kBatch, 1}), options);
  b.minimize(mean(y * b.variable("w", {1}, {.dtype = f64, .init = "ones"})), Sgd{});
  Session session(std::move(b).build(), Towers{.devices = parse_devices("cpu:0,cpu:1")});
  session.step({{"x", HostTensor::of<double>({4, 1}, {1, 2, 3, 7})}});
  return session.state();
}

double value(const State& state, const char* name) { return state.at(name).data<double>()[0]; }

TEST(BatchNormLayer, averages_the_towers_variances_of_the_kind_asked_for) {
  State biased = after_a_step({.momentum = 0.9}), sample = after_a_step({.momentum = 0.9, .unbiased = true}), whole = after_a_step({.momentum = 0.9, .sync = true, .unbiased = true});
  EXPECT_DOUBLE_EQ(value(biased, "batch_norm/moving_mean"), 0.1 * 3.25);
  EXPECT_DOUBLE_EQ(value(biased, "batch_norm/moving_variance"), 0.9 + 0.1 * (0.25 + 4) / 2);
  EXPECT_DOUBLE_EQ(value(sample, "batch_norm/moving_variance"), 0.9 + 0.1 * (0.5 + 8) / 2);
  EXPECT_DOUBLE_EQ(value(whole, "batch_norm/moving_mean"), 0.1 * 3.25);
  EXPECT_NEAR(value(whole, "batch_norm/moving_variance"), 0.9 + 0.1 * 20.75 / 3, 1e-15);
}

TEST(BatchNormLayer, has_only_what_is_asked_for) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 2, 3});
  nn::batch_norm(x);
  nn::batch_norm(x, {.scale = false, .name = "shifted"});
  nn::batch_norm(x, {.center = false, .trainable = false, .name = "frozen"});
  EXPECT_EQ(variables_of(b.graph()), (Strings{"batch_norm/gamma (3)", "batch_norm/beta (3)", "batch_norm/moving_mean (3), kept", "batch_norm/moving_variance (3), kept", "shifted/beta (3)",
                                              "shifted/moving_mean (3), kept", "shifted/moving_variance (3), kept", "frozen/gamma (3), kept", "frozen/moving_mean (3), kept",
                                              "frozen/moving_variance (3), kept"}));
  EXPECT_EQ(b.graph().updates.size(), 4u);
}

TEST(BatchNormLayer, frozen_reads_its_running_statistics_in_training) {
  Builder b("net");
  Value y = nn::batch_norm(b.input("x", f64, {kBatch, 1}), {.epsilon = 0, .trainable = false});
  Tensors state = {{"batch_norm/gamma", HostTensor::of<double>({1}, {2})}, {"batch_norm/beta", HostTensor::of<double>({1}, {1})}, {"batch_norm/moving_mean", HostTensor::of<double>({1}, {3})},
                   {"batch_norm/moving_variance", HostTensor::of<double>({1}, {4})}};
  EXPECT_EQ(run_whole(b.graph(), {{"x", HostTensor::of<double>({2, 1}, {3, 7})}}, state, 2, {{"y", y.id}}).fetched.at("y"), HostTensor::of<double>({2, 1}, {1, 5}));
}

TEST(BatchNormLayer, predicts_without_scale_or_center) {
  Builder b("net");
  Value x = b.input("x", f64, {kBatch, 1}), y = nn::batch_norm(nn::batch_norm(x, {.epsilon = 1, .center = false}), {.epsilon = 0, .scale = false});
  b.output(identity(y, "normalised"));
  Session session(std::move(b).build());
  HostTensor rows = HostTensor::of<double>({2, 1}, {3, 7});
  EXPECT_LE(distance(session.predict({{"x", rows}})["normalised"], HostTensor::of<double>({2, 1}, {3 / std::sqrt(2), 7 / std::sqrt(2)})), 1e-15);
}

TEST(Norms, have_parameters_of_what_they_normalise_over) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 4, 6});
  nn::layer_norm(x);
  nn::layer_norm(x, {.axis = 1, .center = false, .name = "both"});
  nn::rms_norm(x);
  nn::group_norm(x, {.groups = 3});
  EXPECT_EQ(variables_of(b.graph()), (Strings{"layer_norm/gamma (6)", "layer_norm/beta (6)", "both/gamma (4, 6)", "rms_norm/gamma (6)", "group_norm/gamma (6)", "group_norm/beta (6)"}));
  EXPECT_TRUE(says([&] { nn::layer_norm(x, {.axis = 0}); }, {"[layer_norm] axis 0", "fixed size"}));
  EXPECT_TRUE(says([&] { nn::layer_norm(x, {.axis = -4}); }, {"[layer_norm] axis -4 is out of range"}));
  EXPECT_TRUE(says([&] { nn::group_norm(x, {.groups = 4}); }, {"6 channels cannot be cut into 4 equal groups"}));
}

/// The layer against the formula that holds all scores.
TEST(MultiHeadAttention, is_softmax_of_scores_times_values) {
  Builder b("net");
  Value x = b.input("x", f64, {kBatch, 3, 4}), memory = b.input("memory", f64, {kBatch, 5, 6}), mask = b.input("mask", f64, {kBatch, 1, 1, 5});
  Value y = nn::multi_head_attention(x, memory, mask, {.heads = 2, .key_size = 3, .value_size = 2, .output_size = 7});
  const Graph& g = b.graph();
  EXPECT_EQ(variables_of(g), (Strings{"multi_head_attention/query/kernel (4, 2, 3)", "multi_head_attention/query/bias (2, 3)", "multi_head_attention/key/kernel (6, 2, 3)",
                                      "multi_head_attention/key/bias (2, 3)", "multi_head_attention/value/kernel (6, 2, 2)", "multi_head_attention/value/bias (2, 2)",
                                      "multi_head_attention/attention_output/kernel (2, 2, 7)",
                                      "multi_head_attention/attention_output/bias (7)"}));
  EXPECT_EQ(y.type(), (TensorType{f64, {kBatch, 3, 7}}));
  for (NodeId id = 0; id < g.size(); ++id) EXPECT_NE(g.node(id).op->name, "transpose") << "the heads stay where the products leave them";
  auto v = [&](const std::string& name) { return b.graph().value(b.graph().at("multi_head_attention/" + name)); };
  auto heads = [&](Value in, const std::string& name) { return contract("bti,ihk->bhtk", in, v(name + "/kernel")) + reshape(v(name + "/bias"), {2, 1, v(name + "/bias").shape()[1]}); };
  Value scores = contract("bhqk,bhjk->bhqj", heads(x, "query"), heads(memory, "key")) / std::sqrt(3.0) + mask;
  Value by_hand = contract("bhqk,hko->bqo", contract("bhqj,bhjk->bhqk", softmax(scores), heads(memory, "value")), v("attention_output/kernel")) + v("attention_output/bias");
  Tensors got = run_whole(g, feeds_for(g, 3), state_for(g), 3, {{"layer", y.id}, {"by hand", by_hand.id}}).fetched;
  EXPECT_LE(distance(got.at("layer"), got.at("by hand")), 1e-14);
  EXPECT_TRUE(says([&] { nn::multi_head_attention(x, memory, {}, {.heads = 2}); }, {"[multi_head_attention] key_size is 0"}));
  EXPECT_TRUE(says([&] { nn::multi_head_attention(mask, memory, {}, {.heads = 2, .key_size = 3}); }, {"[multi_head_attention] 'mask'", "batch, place and feature"}));
}

/// One product, and the numbers of three.
TEST(MultiHeadAttention, packed_is_attention_of_what_lies_side_by_side) {
  Builder b("net");
  Value x = b.input("x", f64, {kBatch, 5, 4}), mask = b.input("mask", f64, {kBatch, 1, 1, 5});
  Value y = nn::multi_head_attention(x, x, mask, {.heads = 2, .key_size = 3, .causal = true, .packed = true});
  EXPECT_EQ(variables_of(b.graph()), (Strings{"multi_head_attention/qkv/kernel (4, 3, 2, 3)", "multi_head_attention/qkv/bias (3, 2, 3)", "multi_head_attention/attention_output/kernel (2, 3, 4)",
                                              "multi_head_attention/attention_output/bias (4)"}));
  auto v = [&](const std::string& name) { return b.graph().value(b.graph().at("multi_head_attention/" + name)); };
  auto part = [&](std::int64_t k) {
    const Value kernel = squeeze(slice(v("qkv/kernel"), {0, k, 0, 0}, {4, 1, 2, 3}), {1}), bias = slice(v("qkv/bias"), {k, 0, 0}, {1, 2, 3});
    return contract("bti,ihk->bthk", x, kernel) + bias;
  };
  Value by_hand = contract("bthk,hko->bto", scaled_dot_product_attention(part(0), part(1), part(2), mask, {.causal = true, .layout = "bthk"}), v("attention_output/kernel")) + v("attention_output/bias");
  const Graph& g = b.graph();
  Tensors got = run_whole(g, feeds_for(g, 3), state_for(g), 3, {{"layer", y.id}, {"by hand", by_hand.id}}).fetched;
  EXPECT_LE(distance(got.at("layer"), got.at("by hand")), 1e-14);
  EXPECT_TRUE(says([&] { nn::multi_head_attention(x, x + 1, {}, {.heads = 2, .key_size = 3, .packed = true}); }, {"[multi_head_attention] packed: ", "are two values"}));
  Builder other("other");
  Value twin = other.input("x", f64, {kBatch, 5, 4});
  EXPECT_EQ(twin.id, x.id);
  EXPECT_TRUE(says([&] { nn::multi_head_attention(x, twin, {}, {.heads = 2, .key_size = 3, .packed = true}); }, {"[multi_head_attention] packed: ", "are two values"}));
  EXPECT_TRUE(says([&] { nn::multi_head_attention(x, x, {}, {.heads = 2, .key_size = 3, .value_size = 2, .packed = true}); }, {"[multi_head_attention] packed: values of 2 beside keys of 3"}));
}

/// As far as those of three products, whose fans do not count what lies beside them.
TEST(MultiHeadAttention, packed_weights_begin_as_far_from_0_as_those_of_three) {
  for (const char* init : {"glorot_uniform", "he_normal", "ones"}) {
    Builder b("net");
    Value x = b.input("x", f64, {kBatch, 5, 64});
    for (bool packed : {false, true}) nn::multi_head_attention(x, x, {}, {.heads = 4, .key_size = 16, .packed = packed, .kernel_init = init, .name = packed ? "packed" : "apart"});
    auto size = [&](const char* name) {
      const HostTensor w = initial_value(b.graph().node(b.graph().at(name).node), 1);
      double sum = 0;
      for (double v : w.data<double>()) sum += v * v;
      return std::sqrt(sum / static_cast<double>(w.elements()));
    };
    EXPECT_NEAR(size("packed/qkv/kernel") / size("apart/query/kernel"), 1, 0.05) << init;
  }
}

}  // namespace
}  // namespace belfry::test
