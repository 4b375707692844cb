#include <gtest/gtest.h>

#include <cmath>

#include "numeric_gradient.h"
#include "tables.h"

namespace belfry::test {

OpTables local_response_norm_cases() {
  struct Norm {
    const char* name;
    Shape x;
    Attributes attributes = {};
  };
  auto with = [](int radius, double bias, double alpha, double beta) { return Attributes{{"depth_radius", radius}, {"bias", bias}, {"alpha", alpha}, {"beta", beta}}; };
  OpTable forward{"local_response_norm", {}}, gradient{"local_response_norm_gradient", {}};
  for (const Norm& n : {Norm{"wider than the channels", {kBatch, 2, 1, 4}}, Norm{"three neighbours", {kBatch, 2, 2, 5}, with(1, 2, 0.5, 0.75)}, Norm{"itself alone, rows behind", {2, kBatch, 3}, with(0, 1, 1, 1)},
                        Norm{"any power", {kBatch, 7}, with(2, 1.5, 0.25, 0.6)}, Norm{"without rows", {3, 4}, with(1, 1, 0, 0.5)}}) {
    forward.cases.push_back({.name = n.name, .attributes = n.attributes, .inputs = {real(n.x)}, .outputs = {{f32, n.x}}});
    gradient.cases.push_back({.name = n.name, .attributes = n.attributes, .inputs = {real(n.x), real(n.x)}, .outputs = {{f32, n.x}}});
  }
  TensorType x{f32, {kBatch, 4}};
  forward.cases[0].refused = {{{x}, {"depth_radius"}, {{"depth_radius", -1}}},
                              {{x}, {"bias 0", "above 0"}, {{"bias", 0.0}}},
                              {{x}, {"alpha -1"}, {{"alpha", -1.0}}},
                              {{{f32, {kBatch}}}, {"axis of channels"}},
                              {{{f32, {3, kBatch}}}, {"fixed size"}},
                              {{{i32, x.shape}}, {"must be f32 or f64"}}};
  gradient.cases[0].refused = {{{x, {f32, {kBatch, 5}}}, {"dy must be " + to_string(x)}}};
  return {forward, gradient};
}

namespace {

TEST(LocalResponseNorm, divides_by_the_squares_of_the_neighbours) {
  HostTensor x = HostTensor::of<float>({1, 4}, {1, 2, 3, 4});
  HostTensor y = reference_of("local_response_norm", {x}, {{"depth_radius", 1}, {"bias", 1.0}, {"alpha", 0.5}, {"beta", 0.75}})[0];
  const double sums[] = {1 + 4, 1 + 4 + 9, 4 + 9 + 16, 9 + 16};
  for (std::size_t c = 0; c < 4; ++c) EXPECT_NEAR(y.data<float>()[c], static_cast<double>(c + 1) / std::pow(1 + 0.5 * sums[c], 0.75), 1e-7);
}

}  // namespace
}  // namespace belfry::test
