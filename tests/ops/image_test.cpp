#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/error.h>
#include <belfry/ops/build.h>

#include "interpreter.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Image, blocks_of_pixels_become_channels_and_pixels_again) {
  Builder b("blocks");
  Value x = b.input("x", f32, {kBatch, 2, 4, 1}), deep = space_to_depth(x, 2), back = depth_to_space(deep, 2);
  HostTensor picture = HostTensor::of<float>({1, 2, 4, 1}, {0, 1, 2, 3, 4, 5, 6, 7});
  Result r = run_whole(b.graph(), {{"x", picture}}, {}, 1, {{"deep", deep.id}, {"back", back.id}});
  EXPECT_EQ(deep.shape(), (Shape{kBatch, 1, 2, 4}));
  EXPECT_THAT(r.fetched.at("deep").data<float>(), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
  EXPECT_EQ(r.fetched.at("back"), picture);
}

TEST(Image, refuses_blocks_that_do_not_fit) {
  Builder b("bad");
  Value x = b.input("x", f32, {kBatch, 4, 6, 3});
  auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message([&] { space_to_depth(x, 4); }), HasSubstr("[space_to_depth] height and width must divide by the block of 4"));
  EXPECT_THAT(message([&] { depth_to_space(x, 2); }), HasSubstr("the channels must divide by the square of the block of 2"));
  EXPECT_THAT(message([&] { space_to_depth(x, 0); }), HasSubstr("block of 0"));
  EXPECT_THAT(message([&] { adjust_contrast(b.input("flat", f32, {kBatch, 4}), 2); }), HasSubstr("x must have 4 axes"));
}

}  // namespace
}  // namespace belfry::test
