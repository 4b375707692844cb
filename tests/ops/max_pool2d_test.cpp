#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/graph/contexts.h>

#include "numeric_gradient.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(MaxPool2d, takes_the_first_of_equal_values_and_says_where) {
  HostTensor x = HostTensor::of<float>({1, 2, 4, 1}, {1, 5, 7, 7, 5, 2, 7, 0});
  auto out = reference_of("max_pool2d", {x});
  EXPECT_EQ(out[0].shape(), (Extents{1, 1, 2, 1}));
  EXPECT_THAT(out[0].data<float>(), ElementsAre(5, 7));
  EXPECT_THAT(out[1].data<std::uint8_t>(), ElementsAre(1, 0));
}

TEST(MaxPool2d, padding_of_its_own_is_never_taken_and_counts_in_positions) {
  HostTensor x = HostTensor::of<float>({1, 2, 2, 1}, {-1, -2, -3, -4});
  auto out = reference_of("max_pool2d", {x}, {{"pads", Integers{1, 0, 0, 1}}, {"strides", Integers{1, 1}}});
  EXPECT_EQ(out[0].shape(), (Extents{1, 2, 2, 1}));
  EXPECT_THAT(out[0].data<float>(), ElementsAre(-1, -2, -1, -2));
  EXPECT_THAT(out[1].data<std::uint8_t>(), ElementsAre(2, 2, 0, 0));
}

TEST(MaxPool2d, the_gradient_goes_to_the_positions_taken) {
  HostTensor x(f32, {1, 2, 4, 1}), dy = HostTensor::of<float>({1, 1, 2, 1}, {3, 4}), index = HostTensor::of<std::uint8_t>({1, 1, 2, 1}, {1, 0});
  HostTensor dx = reference_of("max_pool2d_gradient", {dy, index, x})[0];
  EXPECT_THAT(dx.data<float>(), ElementsAre(0, 3, 4, 0, 0, 0, 0, 0));
}

TEST(MaxPool2d, overlapping_windows_add_up) {
  HostTensor x = HostTensor::of<float>({1, 1, 3, 1}, {0, 9, 1}), dy = HostTensor::of<float>({1, 1, 2, 1}, {1, 2});
  Attributes a = {{"window", Integers{1, 2}}, {"strides", Integers{1, 1}}};
  auto out = reference_of("max_pool2d", {x}, a);
  EXPECT_THAT(out[1].data<std::uint8_t>(), ElementsAre(1, 0));
  EXPECT_THAT(reference_of("max_pool2d_gradient", {dy, out[1], x}, a)[0].data<float>(), ElementsAre(0, 3, 0));
}

TEST(MaxPool2d, padding_is_never_taken) {
  // 3 x 3, window 2, same: the last windows are cut off; all values are negative.
  HostTensor x = HostTensor::of<float>({1, 3, 3, 1}, {-1, -2, -3, -4, -5, -6, -7, -8, -9});
  auto out = reference_of("max_pool2d", {x}, {{"padding", "same"}});
  EXPECT_THAT(out[0].data<float>(), ElementsAre(-1, -3, -7, -9));
  // 3 x 3 windows, same, stride 1: positions count the padding before.
  auto wide = reference_of("max_pool2d", {x}, {{"padding", "same"}, {"window", Integers{3, 3}}, {"strides", Integers{1, 1}}});
  EXPECT_EQ(wide[1].data<std::uint8_t>()[0], 4);
}

TEST(MaxPool2d, dilated_windows_look_at_every_other_pixel) {
  HostTensor x = HostTensor::of<float>({1, 1, 5, 1}, {1, 9, 3, 8, 2});
  auto out = reference_of("max_pool2d", {x}, {{"window", Integers{1, 2}}, {"strides", Integers{1, 1}}, {"dilations", Integers{1, 2}}});
  EXPECT_THAT(out[0].data<float>(), ElementsAre(3, 9, 3));
  EXPECT_THAT(out[1].data<std::uint8_t>(), ElementsAre(1, 0, 0));
}

TEST(MaxPool2d, a_nan_is_passed_on) {
  float nan = std::nanf("");
  HostTensor x = HostTensor::of<float>({1, 2, 2, 1}, {1, nan, 3, nan});
  auto out = reference_of("max_pool2d", {x});
  EXPECT_TRUE(std::isnan(out[0].data<float>()[0]));
  EXPECT_EQ(out[1].data<std::uint8_t>()[0], 1);
}

TEST(MaxPool2d, gradients_are_the_central_differences) {
  for (const MaxPool2dOptions& o : {MaxPool2dOptions{}, MaxPool2dOptions{.window = {3, 2}, .strides = {2, 1}, .padding = "same"}}) {
    EXPECT_LT(gradient_error([&](Builder& b) {
      return reduce_sum(square(max_pool2d(b.variable("x", {2, 5, 4, 2}, {.dtype = f64, .init = "normal", .init_value = 1}), o)));
    }), 1e-7);
  }
}

TEST(MaxPool2d, refuses_windows_that_do_not_fit) {
  auto message = [](const MaxPool2dOptions& o) -> std::string {
    Builder b("bad");
    try {
      max_pool2d(b.input("x", f32, {kBatch, 3, 3, 1}), o);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({.window = {4, 2}}), HasSubstr("use padding \"same\""));
  EXPECT_THAT(message({.window = {2}}), HasSubstr("window are two sizes"));
  EXPECT_THAT(message({.window = {17, 17}, .padding = "same"}), HasSubstr("u8 does not hold"));
}

}  // namespace
}  // namespace belfry::test
