#include <gtest/gtest.h>

#include <cmath>

#include <belfry/ops/batch_norm/batch_norm.h>

#include "tables.h"

namespace belfry::test {

OpTables batch_norm_cases() {
  auto of = [](const char* name, Shape x, bool scale = true, bool center = true, Attributes attributes = {}) {
    CaseInput gamma = positive({3}), beta = real({3});
    gamma.given = scale, beta.given = center;
    TensorType c{f32, {3}};
    return OpCase{.name = name, .attributes = std::move(attributes), .inputs = {real(x), gamma, beta, real({3}), positive({3})}, .outputs = {{f32, x}, c, c, c},
                  .tolerance = 1e-4, .gradient_tolerance = 1e-5, .exact_sums = false, .by_share = true};
  };
  // Statistics of no batch, so that many a y lies beyond the edges of the activations.
  auto gradient = [](const char* name, Shape x, bool scale = true, Attributes attributes = {}) {
    CaseInput gamma = positive({3}), beta = attributes.find("activation") ? CaseInput{{f32, {3}}, -2, 8} : real({3});
    gamma.given = beta.given = scale;
    TensorType c{f32, {3}};
    return OpCase{.name = name, .attributes = std::move(attributes), .inputs = {real(x), gamma, beta, real({3}), positive({3}), real(x)}, .outputs = {{f32, x}, c, c}, .tolerance = 1e-4, .exact_sums = false, .by_share = true};
  };
  TensorType c{f32, {3}};
  OpTable a{"batch_norm", {of("dense", {kBatch, 3}), of("image", {kBatch, 2, 2, 3}), of("sync", {kBatch, 2, 3}, true, true, {{"sync", true}}), of("without scale", {kBatch, 2, 3}, false),
                           of("without center", {kBatch, 3}, true, false), of("neither", {kBatch, 1, 2, 1, 3}, false, false), of("without rows", {4, 3})}};
  OpTable b{"batch_norm_gradient", {gradient("dense", {kBatch, 3}), gradient("time-major", {2, kBatch, 3}), gradient("without scale", {kBatch, 2, 3}, false),
                                    gradient("behind relu", {kBatch, 2, 2, 3}, true, {{"activation", "relu"}}), gradient("behind relu6", {kBatch, 5, 3}, true, {{"activation", "relu6"}}),
                                    gradient("behind relu, without scale", {kBatch, 2, 3}, false, {{"activation", "relu"}}), gradient("without rows", {4, 3})}};
  OpCase biased = of("without a bias that the running mean has", {kBatch, 2, 3});
  biased.inputs.push_back(real({3}));
  a.cases.insert(a.cases.begin() + 1, biased);
  a.cases[0].refused = {{{{f32, {3}}, c, c, c, c}, {"a batch and a channel axis"}},
                        {{{f32, {kBatch, 3}}, c, c, {f32, {4}}, c}, {"running statistics must be f32(3)"}},
                        {{{i32, {kBatch, 3}}, c, c, c, c}, {"must be f32 or f64"}},
                        {{{f32, {kBatch, 3}}, c, c}, {"takes 5 inputs, not 3"}},
                        {{{f32, {kBatch, 3}}, c, c, c, c}, {"epsilon", "[0, 1]"}, {{"epsilon", -1.0}}}};
  b.cases[0].refused = {{{{f32, {kBatch, 3}}, c, c, c, c, {f32, {kBatch, 4}}}, {"dy must have the type of x"}},
                        {{{f32, {kBatch, 3}}, c, c, {f32, {4}}, c, {f32, {kBatch, 3}}}, {"gamma, beta, mean and variance must be f32(3)"}},
                        {{{f32, {kBatch, 3}}, c, c, c, c, {f32, {kBatch, 3}}}, {"activation", "relu6"}, {{"activation", "gelu"}}},
                        {{{f32, {kBatch, 3}}, c, c, c, c, {f32, {kBatch, 3}}}, {"sync", "do not go together"}, {{"sync", true}, {"activation", "relu"}}},
                        {{{f32, {}}, c, c, c, c, {f32, {}}}, {"a batch and a channel axis"}}};
  a.cases.back().by_share = b.cases.back().by_share = false;
  OpTable statistic{"batch_statistic", {{.name = "channels", .inputs = {real({3}), real({3})}, .outputs = {c}}, {.name = "none", .inputs = {real({0}), real({0})}, .outputs = {{f32, {0}}}}}};
  statistic.cases[0].refused = {{{c, {f32, {4}}}, {"running must have the type of batch, f32(3)"}}, {{{i32, {3}}, {i32, {3}}}, {"must be f32 or f64"}}};
  return {a, b, statistic};
}

TEST(BatchNorm, has_the_variance_of_a_sample_beside_the_biased_one) {
  OpDef def = batch_norm_defs()[0];
  OpCase c = in_f64(def, cases_of("batch_norm").back());
  HostTensor x = HostTensor::of<double>({4, 3}, {1, 0, 2, 2, 0, 2, 3, 0, 2, 4, 4, 2}), some(f64, {3});
  auto out = run_op(def, c, {x, some, some, some, some}, 1);
  EXPECT_EQ(out[2], HostTensor::of<double>({3}, {1.25, 3, 0}));
  EXPECT_LE(distance(out[3], HostTensor::of<double>({3}, {5.0 / 3, 4, 0})), 1e-15);
  c.outputs[0].shape[0] = 1;
  auto of_one = run_op(def, c, {HostTensor::of<double>({1, 3}, {1, 2, 3}), some, some, some, some}, 1);
  EXPECT_EQ(of_one[3], of_one[2]) << "of one element there is no other variance";
}

}  // namespace belfry::test
