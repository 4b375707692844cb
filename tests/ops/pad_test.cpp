#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "numeric_gradient.h"
#include "tables.h"

namespace belfry::test {

OpTables pad_cases() {
  auto by = [](Integers before, Integers after, const char* mode, double value = 0) { return Attributes{{"before", before}, {"after", after}, {"mode", mode}, {"value", value}}; };
  OpTable forward{"pad", {}}, gradient{"pad_gradient", {}};
  auto both = [&](const char* name, Shape x, Shape y, const Attributes& a) {
    forward.cases.push_back({.name = name, .attributes = a, .inputs = {real(x)}, .outputs = {{f32, y}}});
    gradient.cases.push_back({.name = name, .attributes = a, .inputs = {real(y), real(x)}, .outputs = {{f32, x}}});
  };
  both("a value around", {kBatch, 2, 3}, {kBatch, 5, 4}, by({0, 1, 0}, {0, 2, 1}, "constant", 0.5));
  both("a frame of pixels", {kBatch, 2, 2, 3}, {kBatch, 4, 3, 3}, by({0, 1, 0, 0}, {0, 1, 1, 0}, "constant"));
  both("reflected", {kBatch, 4, 3}, {kBatch, 7, 7}, by({0, 2, 2}, {0, 1, 2}, "reflect"));
  both("symmetric, rows behind", {3, kBatch, 2}, {8, kBatch, 5}, by({3, 0, 1}, {2, 0, 2}, "symmetric"));
  both("nothing", {kBatch, 2}, {kBatch, 2}, by({0, 0}, {0, 0}, "reflect"));
  both("without rows", {2, 3}, {3, 3}, by({1, 0}, {0, 0}, "constant"));
  forward.cases.push_back({.name = "integers", .attributes = by({1, 0}, {0, 0}, "constant", 7), .inputs = {whole_numbers({2, kBatch})}, .outputs = {{i32, {3, kBatch}}}});
  forward.cases.push_back({.name = "a scalar", .attributes = by({}, {}, "constant"), .inputs = {real({})}, .outputs = {{f32, {}}}});
  TensorType x{f32, {kBatch, 2, 3}}, y{f32, {kBatch, 5, 4}};
  forward.cases[0].refused = {{{x}, {"one size for each of the 3 axes", "2 and 3"}, {{"before", Integers{0, 1}}}},
                              {{x}, {"axis 0 has rows", "takes no padding"}, {{"before", Integers{1, 0, 0}}}},
                              {{x}, {"axis 1 of size 2", "padding of 2", "\"reflect\" reaches 1"}, {{"mode", "reflect"}}},
                              {{x}, {"axis 1 of size 2", "padding of 3", "\"symmetric\" reaches 2"}, {{"mode", "symmetric"}, {"after", Integers{0, 3, 0}}}},
                              {{x}, {"before"}, {{"before", Integers{0, -1, 0}}}},
                              {{x}, {"mode"}, {{"mode", "wrap"}}},
                              {{{i32, x.shape}}, {"the value 0.5 is none of i32"}}};
  gradient.cases[0].refused = {{{{f32, {kBatch, 5, 5}}, x}, {"dy must be " + to_string(y)}}, {{{i32, y.shape}, {i32, x.shape}}, {"must be f32 or f64"}}};
  return {forward, gradient};
}

namespace {

using testing::ElementsAre;

TEST(Pad, reflect_leaves_the_edge_out_and_symmetric_repeats_it) {
  HostTensor x = HostTensor::of<std::int32_t>({3}, {1, 2, 3});
  auto padded = [&](const char* mode) { return reference_of("pad", {x}, {{"before", Integers{2}}, {"after", Integers{2}}, {"mode", mode}, {"value", 9.0}})[0]; };
  EXPECT_THAT(padded("constant").values<std::int32_t>(), ElementsAre(9, 9, 1, 2, 3, 9, 9));
  EXPECT_THAT(padded("reflect").values<std::int32_t>(), ElementsAre(3, 2, 1, 2, 3, 2, 1));
  EXPECT_THAT(padded("symmetric").values<std::int32_t>(), ElementsAre(2, 1, 1, 2, 3, 3, 2));
}

}  // namespace
}  // namespace belfry::test
