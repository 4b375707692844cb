#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "numeric_gradient.h"
#include "tables.h"

namespace belfry::test {

OpTables resize_cases() {
  OpTable forward{"resize", {}}, gradient{"resize_gradient", {}};
  auto both = [&](const char* name, Shape x, Integers size, const char* method) {
    Shape y = {x[0], size[0], size[1], x[3]};
    Attributes a = {{"size", size}, {"method", method}};
    forward.cases.push_back({.name = name, .attributes = a, .inputs = {real(x)}, .outputs = {{f32, y}}});
    gradient.cases.push_back({.name = name, .attributes = a, .inputs = {real(y), real(x)}, .outputs = {{f32, x}}});
  };
  both("larger", {kBatch, 2, 3, 2}, {4, 5}, "bilinear");
  both("smaller in height alone", {2 * kBatch, 5, 2, 1}, {2, 3}, "bilinear");
  both("one pixel", {kBatch, 1, 4, 2}, {3, 1}, "bilinear");
  both("nearest", {kBatch, 3, 4, 2}, {5, 2}, "nearest");
  both("without rows", {2, 2, 2, 1}, {3, 3}, "nearest");
  TensorType x{f32, {kBatch, 2, 3, 2}}, y{f32, {kBatch, 4, 5, 2}};
  forward.cases[0].refused = {{{x}, {"size are two sizes"}, {{"size", Integers{4}}}},
                              {{x}, {"the largest is 2147483647"}, {{"size", Integers{4, std::int64_t{1} << 40}}}},
                              {{{f32, {kBatch, 0, 3, 2}}}, {"a picture without pixels"}},
                              {{{f32, {2, 2, kBatch, 2}}}, {"rows lie on axis 0"}},
                              {{{f32, {kBatch, 2, 3}}}, {"must have 4 axes"}},
                              {{x}, {"cubic"}, {{"method", "cubic"}}},
                              {{{i32, x.shape}}, {"must be f32 or f64"}}};
  gradient.cases[0].refused = {{{{f32, {kBatch, 4, 4, 2}}, x}, {"dy must be " + to_string(y)}}};
  return {forward, gradient};
}

namespace {

using testing::ElementsAre;

TEST(Resize, pixels_have_their_centres_at_halves) {
  HostTensor x = HostTensor::of<float>({1, 1, 2, 1}, {0, 4});
  EXPECT_THAT(reference_of("resize", {x}, {{"size", Integers{1, 4}}})[0].data<float>(), ElementsAre(0, 1, 3, 4));
  HostTensor wide = HostTensor::of<float>({1, 1, 4, 1}, {0, 1, 2, 3});
  EXPECT_THAT(reference_of("resize", {wide}, {{"size", Integers{1, 2}}})[0].data<float>(), ElementsAre(0.5, 2.5));
  EXPECT_THAT(reference_of("resize", {wide}, {{"size", Integers{1, 3}}, {"method", "nearest"}})[0].data<float>(), ElementsAre(0, 2, 3));
}

}  // namespace
}  // namespace belfry::test
