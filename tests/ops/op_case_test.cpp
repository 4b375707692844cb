// The checks that every op must pass: what is wrong fails them.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <belfry/graph/contexts.h>
#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>

#include "op_case.h"

namespace belfry::test {
namespace {

/// y = x², z = x³; `slope` of z is 3 where it is right.
OpDef powers_def(double slope, bool follows_both = true) {
  return {.name = "powers",
          .inputs = {"x"},
          .outputs = {"y", "z"},
          .infer = [](InferContext& c) { return std::vector<TensorType>{c.type(0), c.type(0)}; },
          .reference = [](const Call& c) {
            visit_float(c.dtype(), [&]<class T>() {
              auto x = c.inputs[0].as<T>();
              for (std::size_t i = 0; i < x.size(); ++i) c.outputs[0].as<T>()[i] = x[i] * x[i], c.outputs[1].as<T>()[i] = x[i] * x[i] * x[i];
            });
          },
          .gradient = [=](GradientContext& g) {
            Value x = g.input(0), dx = 2 * x * g.output_gradient();
            if (follows_both && g.output_gradient(1)) dx = dx + slope * square(x) * g.output_gradient(1);
            return std::vector<Value>{dx};
          },
          .split = split_elementwise()};
}

OpCase powers_case() { return {.name = "powers", .inputs = {real({kBatch, 2})}, .outputs = {{f32, {kBatch, 2}}, {f32, {kBatch, 2}}}, .exact_sums = false}; }

TEST(OpCases, check_all_outputs_that_a_gradient_follows) {
  check_gradient(powers_def(3), {powers_case()});
  check_gradient(powers_def(7, false), {powers_case()});  // a loss that reads z is refused by name
  EXPECT_NONFATAL_FAILURE(check_gradient(powers_def(7), {powers_case()}), "gradient_tolerance");
}

/// The rule reads a value per tower whole, which expand refuses by name; rules that differ in what they say have other errors.
TEST(OpCases, hold_expand_to_the_errors_that_a_rule_asks_for) {
  check_expanded(powers_def(3), {powers_case()});
  OpDef whole = powers_def(3);
  whole.split = all_replicated();
  OpCase c = powers_case();
  c.inputs = {real({2})};
  c.outputs = {{f32, {2}}, {f32, {2}}};
  check_expanded(whole, {c});
}

}  // namespace
}  // namespace belfry::test
