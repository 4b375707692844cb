// Infinities where an op has an answer for them: its reference and its kernels give it, and none becomes a NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <belfry/ops/all_ops.h>
#include <belfry/ops/cpu_kernels.h>

#include "tables.h"

namespace belfry::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
using Floats = std::vector<float>;

struct Given {
  HostTensor tensor;
  bool present = true;
};
Given floats(Extents shape, const Floats& x) { return {HostTensor::of<float>(std::move(shape), x)}; }
Given bools(Extents shape, const std::vector<int>& x) {
  HostTensor out(boolean, std::move(shape));
  for (std::size_t i = 0; i < x.size(); ++i) out.data<bool>()[i] = x[i] != 0;
  return {out};
}
const Given kLeftOut = {HostTensor(boolean, {1}), false}, kAny = {HostTensor(f32, {0})};

/// Output k of the case is any where `wanted[k]` is kAny; its type then stands in `types`.
void expect(const std::string& op, const std::vector<Given>& inputs, const std::vector<Given>& wanted, const Attributes& attributes = {}, const std::vector<TensorType>& types = {}) {
  static const OpSet ops = standard_ops();
  static const KernelTable kernels = cpu_kernels();
  auto type_of = [](const HostTensor& t) { return TensorType{t.dtype(), Shape(t.shape().begin(), t.shape().end())}; };
  OpCase c{.name = "infinities", .attributes = attributes};
  std::vector<HostTensor> in, out;
  for (const Given& x : inputs) {
    in.push_back(x.tensor);
    c.inputs.push_back({type_of(x.tensor)});
    c.inputs.back().given = x.present;
  }
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    out.push_back(wanted[k].tensor);
    c.outputs.push_back(k < types.size() ? types[k] : type_of(wanted[k].tensor));
  }
  EXPECT_GT(check_given(kernels, ops.at(op), c, in, out), 0) << op << " has no kernel for the case";
}

/// Long enough for whole vectors and their tails.
Floats repeated(const Floats& x) {
  Floats out;
  for (int i = 0; i < 11; ++i) out.insert(out.end(), x.begin(), x.end());
  return out;
}
void expect_each(const std::string& op, const std::vector<Floats>& inputs, const Floats& wanted, const Attributes& attributes = {}) {
  std::vector<Given> in;
  for (const Floats& x : inputs) in.push_back(floats({static_cast<std::int64_t>(11 * x.size())}, repeated(x)));
  expect(op, in, {floats({static_cast<std::int64_t>(11 * wanted.size())}, repeated(wanted))}, attributes);
}

TEST(Infinities, elementwise_ops_have_their_limits) {
  expect_each("relu", {{-inf, -1, inf}}, {0, 0, inf});
  expect_each("relu6", {{-inf, inf}}, {0, 6});
  expect_each("clip", {{-inf, 0, inf}}, {-1, 0, 2}, {{"min", -1.0}, {"max", 2.0}});
  expect_each("maximum", {{-inf, 1, inf, -inf}, {1, inf, -inf, -inf}}, {1, inf, inf, -inf});
  expect_each("minimum", {{-inf, 1, inf, inf}, {1, inf, -inf, inf}}, {-inf, 1, -inf, inf});
  expect_each("exp", {{-inf, inf}}, {0, inf});
  expect_each("log", {{0, inf}}, {-inf, inf});
  expect_each("sigmoid", {{-inf, inf}}, {0, 1});
  expect_each("tanh", {{-inf, inf}}, {-1, 1});
  expect_each("erf", {{-inf, inf}}, {-1, 1});
  expect_each("softplus", {{-inf, inf}}, {0, inf});
  expect_each("elu", {{-inf, inf}}, {-1, inf});
  expect_each("leaky_relu", {{-inf, inf}}, {-inf, inf});
  expect_each("reciprocal", {{-inf, inf}}, {-0.0f, 0});
  expect_each("rsqrt", {{inf, 0}}, {0, inf});
  for (const char* gelu : {"gelu", "gelu_tanh"}) expect_each(gelu, {{-inf, -1e30f, 1e30f, inf}}, {0, 0, 1e30f, inf});
  expect_each("gelu_gradient", {{2, 2, 2, 2}, {-inf, -1e30f, 1e30f, inf}}, {0, 0, 2, 2});
}

TEST(Infinities, what_is_not_chosen_does_not_count) {
  expect("where", {bools({4}, {1, 0, 1, 0}), floats({4}, {1, inf, -inf, nan}), floats({4}, {nan, 2, inf, -inf})}, {floats({4}, {1, 2, -inf, -inf})});
}

TEST(Infinities, greatest_least_and_sums) {
  Attributes rows = {{"axes", Integers{1}}};
  expect("reduce_max", {floats({3, 3}, {-inf, -inf, -inf, 1, inf, 2, -inf, 3, -inf})}, {floats({3}, {-inf, inf, 3})}, rows);
  expect("reduce_min", {floats({3, 3}, {inf, inf, inf, 1, -inf, 2, inf, 3, inf})}, {floats({3}, {inf, -inf, 3})}, rows);
  expect("reduce_sum", {floats({2, 3}, {1, inf, 2, -inf, 3, 4})}, {floats({2}, {inf, -inf})}, rows);
  expect("reduce_logsumexp", {floats({3, 2}, {-inf, -inf, -inf, 3, inf, 3})}, {floats({3}, {-inf, 3, inf})}, rows);
  expect("max_pool2d", {floats({1, 2, 2, 1}, {-inf, -inf, -inf, -inf})}, {floats({1, 1, 1, 1}, {-inf}), kAny}, {}, {{f32, {1, 1, 1, 1}}, {u8, {1, 1, 1, 1}}});
  expect("argmax", {floats({2, 3}, {-inf, inf, 0, -inf, -inf, -inf})}, {{HostTensor::of<std::int32_t>({2}, {1, 0})}});
}

TEST(Infinities, classes_of_minus_infinity_have_no_share) {
  float half = std::log(0.5f);
  expect("softmax", {floats({2, 3}, {-inf, 0, 0, -inf, 5, -inf})}, {floats({2, 3}, {0, 0.5, 0.5, 0, 1, 0})});
  expect("log_softmax", {floats({1, 3}, {-inf, 0, 0})}, {floats({1, 3}, {-inf, half, half})});
}

/// One query sees key 0 alone, another keys 0 and 1; keys 1 and 2 hold what is no number.
void expect_attention(const Given& mask, const Attributes& attributes = {}) {
  Given q = floats({2, 1}, {1, 2}), k = floats({3, 1}, {0, -inf, nan}), v = floats({3, 2}, {3, 4, inf, nan, nan, -inf});
  expect("scaled_dot_product_attention", {q, k, v, mask}, {floats({2, 2}, {3, 4, 3, 4}), kAny}, attributes, {{f32, {2, 2}}, {f32, {2}}});
  Given dy = floats({2, 2}, {1, 2, 10, 20}), y = floats({2, 2}, {3, 4, 3, 4}), log_sum = floats({2}, {0, 0});
  expect("scaled_dot_product_attention_gradient", {q, k, v, y, log_sum, dy, mask},
         {floats({2, 1}, {0, 0}), floats({3, 1}, {0, 0, 0}), floats({3, 2}, {11, 22, 0, 0, 0, 0}), floats({2, 3}, {0, 0, 0, 0, 0, 0})}, attributes);
}

TEST(Infinities, a_key_that_is_not_seen_adds_nothing_and_gets_nothing) {
  expect_attention(bools({1, 3}, {1, 0, 0}));
  expect_attention(floats({1, 3}, {0, -inf, -inf}));
}

TEST(Infinities, what_comes_later_is_not_seen_by_a_causal_query) {
  Given x = floats({2, 1}, {1, inf});
  expect("scaled_dot_product_attention", {floats({2, 1}, {1, 1}), floats({2, 1}, {0, -inf}), x, kLeftOut}, {kAny, kAny}, {{"causal", true}}, {{f32, {2, 1}}, {f32, {2}}});
  Given q = floats({1, 1}, {1});
  expect("scaled_dot_product_attention", {q, floats({2, 1}, {0, nan}), x, kLeftOut}, {floats({1, 1}, {1}), floats({1}, {0})}, {{"causal", true}});
}

TEST(Infinities, bilinear_pixels_look_at_no_more_than_they_need) {
  Attributes one = {{"size", Integers{1, 1}}};
  // As TensorFlow: the middle of three is looked at alone.
  expect("resize", {floats({1, 1, 3, 1}, {nan, 2, inf})}, {floats({1, 1, 1, 1}, {2})}, one);
  expect("resize", {floats({1, 3, 1, 1}, {nan, 2, inf})}, {floats({1, 1, 1, 1}, {2})}, one);
  expect("resize_gradient", {floats({1, 1, 1, 1}, {5}), floats({1, 1, 3, 1}, {nan, 2, inf})}, {floats({1, 1, 3, 1}, {0, 5, 0})}, one);
}

}  // namespace
}  // namespace belfry::test
