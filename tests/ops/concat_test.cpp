#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/ops/build.h>

#include "built.h"
#include "tables.h"

namespace belfry::test {

OpTables concat_cases() {
  const Dim B = kBatch;
  auto of = [](const char* name, int axis, std::vector<Shape> xs, Shape y) {
    OpCase c{.name = name, .attributes = {{"axis", axis}}, .outputs = {{f32, std::move(y)}}};
    for (Shape& x : xs) c.inputs.push_back(real(std::move(x)));
    return c;
  };
  OpTable t{"concat",
            {of("features of rows", -1, {{B, 2}, {B, 3}, {B, 1}}, {B, 6}), of("without rows", 0, {{2, 2}, {1, 2}}, {3, 2}), of("along the rows", 0, {{B, 2}, {2 * B, 2}}, {3 * B, 2}),
             of("one alone", 0, {{B}}, {B}), of("time-major", 0, {{2, B}, {1, B}}, {3, B}), of("along one of two row axes", 0, {{B, B}, {B, B}}, {2 * B, B}),
             of("an empty one", 1, {{B, 0}, {B, 2}}, {B, 2})}};
  t.cases.push_back({.name = "integers", .attributes = {{"axis", 1}}, .inputs = {whole_numbers({B, 2}), whole_numbers({B, 1})}, .outputs = {{i32, {B, 3}}}});
  t.cases.push_back({.name = "halves", .attributes = {{"axis", 1}}, .inputs = {{{bf16, {B, 2}}}, {{bf16, {B, 1}}}}, .outputs = {{bf16, {B, 3}}}, .keep_dtypes = true});
  t.cases[0].refused = {{{{f32, {B, 2}}, {f32, {2, 2}}}, {"input 1 is (2, 2)", "does not fit to (batch, 2)"}},
                        {{{f32, {2}}, {f32, {B}}}, {"input 1 is (batch)"}},
                        {{{f32, {2}}, {f64, {2}}}, {"f32", "f64"}},
                        {{{f32, {}}, {f32, {}}}, {"stack them"}},
                        {{{f32, {2, 2}}}, {"axis 2 is out of range"}, {{"axis", 2}}},
                        {{}, {"takes at least 1"}}};
  return {t};
}

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Stack, makes_a_new_axis) {
  HostTensor a = HostTensor::of<float>({2}, {1, 2}), b = HostTensor::of<float>({2}, {3, 4});
  for (int axis : {1, -1}) {
    HostTensor y = built({a, b}, [&](auto x) { return std::vector{stack(x, axis)}; })[0];
    EXPECT_EQ(y.shape(), (Extents{2, 2}));
    EXPECT_THAT(y.data<float>(), ElementsAre(1, 3, 2, 4));
  }
  EXPECT_THAT(built({a, b}, [&](auto x) { return std::vector{stack(x)}; })[0].data<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(Stack, says_what_does_not_lie_over_what) {
  EXPECT_THAT(refusal({{f32, {2}}, {f32, {3}}}, [](auto x) { return std::vector{stack(x)}; }), HasSubstr("[stack] f32(3) 'x1' does not lie over f32(2) 'x0'"));
  EXPECT_THAT(refusal({{f32, {2}}}, [](auto x) { return std::vector{stack(x, 2)}; }), HasSubstr("axis 2 is out of range for values of 1 axes"));
  EXPECT_THAT(refusal({}, [](auto x) { return std::vector{stack(x)}; }), HasSubstr("at least 1"));
}

}  // namespace
}  // namespace belfry::test
