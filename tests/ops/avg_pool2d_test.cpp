#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/error.h>

#include "numeric_gradient.h"
#include "tables.h"

namespace belfry::test {

OpTables avg_pool2d_cases() {
  struct Pool {
    const char* name;
    Shape x, y;
    Attributes attributes = {};
  };
  Attributes overlapping = {{"strides", Integers{1, 1}}}, wide = {{"window", Integers{3, 3}}, {"strides", Integers{1, 1}}, {"padding", "same"}},
             uneven = {{"window", Integers{3, 2}}, {"strides", Integers{2, 1}}, {"padding", "same"}}, apart = {{"window", Integers{1, 2}}, {"strides", Integers{2, 3}}},
             dilated = {{"window", Integers{3, 2}}, {"strides", Integers{2, 1}}, {"dilations", Integers{2, 2}}, {"padding", "same"}},
             padded = {{"window", Integers{3, 2}}, {"strides", Integers{2, 1}}, {"pads", Integers{1, 2, 1, 0}}};
  OpTable forward{"avg_pool2d", {}}, gradient{"avg_pool2d_gradient", {}};
  for (const Pool& p : {Pool{"tiles, a column left over", {kBatch, 4, 5, 2}, {kBatch, 2, 2, 2}}, Pool{"overlapping", {kBatch, 3, 3, 2}, {kBatch, 2, 2, 2}, overlapping},
                        Pool{"padding on all sides", {kBatch, 3, 2, 1}, {kBatch, 3, 2, 1}, wide}, Pool{"overlapping with padding", {kBatch, 4, 3, 2}, {kBatch, 2, 3, 2}, uneven},
                        Pool{"windows apart", {2 * kBatch, 3, 5, 1}, {2 * kBatch, 2, 2, 1}, apart}, Pool{"dilated with padding", {kBatch, 4, 3, 2}, {kBatch, 2, 3, 2}, dilated},
                        Pool{"padding of its own", {kBatch, 4, 3, 2}, {kBatch, 3, 3, 2}, padded}, Pool{"without rows", {2, 4, 2, 2}, {2, 2, 1, 2}}}) {
    TensorType x{f32, p.x}, y{f32, p.y};
    forward.cases.push_back({.name = p.name, .attributes = p.attributes, .inputs = {{x}}, .outputs = {y}});
    gradient.cases.push_back({.name = p.name, .attributes = p.attributes, .inputs = {{y}, {x}}, .outputs = {x}});
  }
  TensorType x{f32, {kBatch, 4, 5, 2}}, y{f32, {kBatch, 2, 2, 2}};
  forward.cases[0].refused = {{{x}, {"5 x 2", "use padding \"same\""}, {{"window", Integers{5, 2}}}},
                              {{x}, {"window are two sizes"}, {{"window", Integers{2}}}},
                              {{x}, {"strides are two sizes"}, {{"strides", Integers{1, 0}}}},
                              {{{f32, {kBatch, 4, 5}}}, {"must have 4 axes"}},
                              {{{f32, {4, kBatch, 5, 2}}}, {"rows lie on axis 0"}},
                              {{{i32, x.shape}}, {"must be f32 or f64"}}};
  gradient.cases[0].refused = {{{{f32, {kBatch, 2, 3, 2}}, x}, {"dy must be " + to_string(y)}}, {{y, x}, {"dy must be"}, {{"padding", "same"}}}};
  return {forward, gradient};
}

namespace {

using testing::ElementsAre;

TEST(AvgPool2d, padding_is_not_counted) {
  HostTensor x = HostTensor::of<float>({1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_THAT(reference_of("avg_pool2d", {x}, {{"padding", "same"}})[0].data<float>(), ElementsAre(3, 4.5, 7.5, 9));
}

TEST(AvgPool2d, the_gradient_is_shared_by_the_elements_under_the_window) {
  HostTensor dy = HostTensor::of<float>({1, 2, 2, 1}, {4, 4, 4, 4}), x(f32, {1, 3, 3, 1});
  EXPECT_THAT(reference_of("avg_pool2d_gradient", {dy, x}, {{"padding", "same"}})[0].data<float>(), ElementsAre(1, 1, 2, 1, 1, 2, 2, 2, 4));
}

TEST(AvgPool2d, global_pools_keep_rows_and_channels) {
  Builder b("global");
  Value x = b.input("x", f32, {kBatch, 4, 5, 3});
  EXPECT_EQ(global_avg_pool2d(x).shape(), (Shape{kBatch, 3}));
  EXPECT_EQ(global_max_pool2d(x, true).shape(), (Shape{kBatch, 1, 1, 3}));
  EXPECT_THROW(global_avg_pool2d(b.input("flat", f32, {kBatch, 4})), UserError);
}

}  // namespace
}  // namespace belfry::test
