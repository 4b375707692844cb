#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/gradients.h>

#include "interpreter.h"
#include "op_case.h"
#include "says.h"

namespace belfry::test {
namespace {

TEST(ClipByNorm, keeps_the_bits_of_what_is_within_the_limit) {
  Builder b("clip");
  Value x = b.input("x", f32, {2, 2}), y = clip_by_norm_along(x, 1.5, {1});
  Value dx = gradients(b.graph(), {reduce_sum(y).id}, {x.id})[0];
  Tensors got = run_whole(b.graph(), {{"x", HostTensor::of<float>({2, 2}, {0.1f, 0.7f, 3, 4})}}, {}, 1, {{"y", y.id}, {"dx", dx.id}}).fetched;
  EXPECT_EQ(got.at("y").data<float>()[0], 0.1f);
  EXPECT_EQ(got.at("y").data<float>()[1], 0.7f);
  EXPECT_LE(distance(got.at("y"), HostTensor::of<float>({2, 2}, {0.1f, 0.7f, 0.9f, 1.2f})), 1e-6);
  EXPECT_EQ(got.at("dx").data<float>()[0], 1);
}

TEST(ClipByNorm, of_zeros_has_a_gradient) {
  Builder b("clip");
  Value x = b.input("x", f32, {3});
  Value dx = gradients(b.graph(), {reduce_sum(clip_by_norm(x, 2)).id}, {x.id})[0];
  EXPECT_EQ(run_whole(b.graph(), {{"x", HostTensor(f32, {3})}}, {}, 1, {{"dx", dx.id}}).fetched.at("dx"), HostTensor::of<float>({3}, {1, 1, 1}));
}

TEST(ClipByGlobalNorm, of_infinities_is_nan_everywhere) {
  Builder b("clip");
  Value x = b.input("x", f32, {1}), y = clip_by_global_norm({x, b.input("y", f32, {2})}, 1)[1];
  const float inf = std::numeric_limits<float>::infinity();
  Tensors got = run_whole(b.graph(), {{"x", HostTensor::of<float>({1}, {inf})}, {"y", HostTensor::of<float>({2}, {1, 0})}}, {}, 1, {{"y", y.id}, {"norm", global_norm({x}).id}}).fetched;
  EXPECT_TRUE(std::isnan(got.at("y").data<float>()[0]) && std::isnan(got.at("y").data<float>()[1]));
  EXPECT_EQ(got.at("norm").data<float>()[0], inf);
}

TEST(ClipByAverageNorm, counts_the_elements) {
  Builder b("clip");
  Value y = clip_by_average_norm(b.input("x", f64, {kBatch, 2}), 0.5);
  EXPECT_EQ(run_whole(b.graph(), {{"x", HostTensor::of<double>({2, 2}, {0, 4, 0, 0})}}, {}, 2, {{"y", y.id}}).fetched.at("y"), HostTensor::of<double>({2, 2}, {0, 2, 0, 0}));
}

TEST(ClipByNorm, refuses_a_limit_that_is_none) {
  Builder b("clip");
  Value x = b.input("x", f32, {3});
  EXPECT_TRUE(says([&] { clip_by_norm(x, 0); }, {"[clip_by_norm] the limit is 0", "positive"}));
  EXPECT_TRUE(says([&] { clip_by_global_norm({}, 1); }, {"[global_norm] there are no values"}));
  EXPECT_TRUE(says([&] { global_norm({x, b.input("y", f64, {})}); }, {"[global_norm] 'x' is f32 and 'y' f64", "one dtype"}));
}

}  // namespace
}  // namespace belfry::test
