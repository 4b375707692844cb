#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/ops/build.h>

#include "built.h"
#include "tables.h"

namespace belfry::test {

OpTables reshape_cases() {
  auto of = [](const char* name, Shape x, Shape y) { return OpCase{.name = name, .attributes = {{"shape", y}}, .inputs = {real(std::move(x))}, .outputs = {{f32, y}}}; };
  const Dim B = kBatch;
  OpTable t{"reshape",
            {of("flatten", {B, 2, 3}, {B, 6}), of("apart again", {B, 6}, {B, 2, 3}), of("without rows", {2, 3}, {6}), of("factor of rows", {B, 2, 3}, {2 * B, 3}), of("out of the factor", {2 * B, 3}, {B, 2, 3}), of("rows and ones", {B, 3}, {1, B, 1, 3}),
             of("rows lead no group before", {3, B, 2}, {3 * B, 2}), of("rows lead no group after", {3 * B, 2}, {3, B, 2}), of("two row axes", {B, B}, {B, B, 1}), of("rows stay behind", {2, 2, B}, {4, B}), of("to a scalar", {1, 1}, {}),
             of("both row axes to one group", {B, 2, B}, {B, 2 * B})}};
  t.cases[0].refused = {{{{f32, {2, 3}}}, {"negative size"}, {{"shape", Shape{-2, -3}}}}, {{{f32, {2, 3}}}, {"cannot bring (2, 3) into the shape (7)"}, {{"shape", Shape{7}}}}, {{{f32, {B, 3}}}, {"cannot bring"}, {{"shape", Shape{3}}}}};
  return {t};
}

namespace {

using testing::HasSubstr;
using Values = std::vector<Value>;

/// The shape of what is made, or what is said against it.
std::string shape_of(Shape x, const std::function<Value(Value)>& make) {
  Shape out;
  std::string said = refusal({{f32, std::move(x)}}, [&](auto v) { return out = make(v[0]).shape(), v; });
  return said == "accepted" ? to_string(std::span(out)) : said;
}

TEST(Squeeze, and_expand_dims_keep_the_symbol_of_the_batch) {
  EXPECT_EQ(shape_of({kBatch, 1, 3, 1}, [](Value x) { return squeeze(x); }), "(batch, 3)");
  EXPECT_EQ(shape_of({kBatch, 1, 3, 1}, [](Value x) { return squeeze(x, {-3}); }), "(batch, 3, 1)");
  EXPECT_EQ(shape_of({kBatch, 3}, [](Value x) { return expand_dims(x, {0, -1}); }), "(1, batch, 3, 1)");
  EXPECT_EQ(shape_of({kBatch, 3}, [](Value x) { return expand_dims(squeeze(x), {}); }), "(batch, 3)");
}

TEST(Squeeze, and_expand_dims_refuse_axes_that_are_not_there_or_not_1) {
  EXPECT_THAT(shape_of({kBatch, 1}, [](Value x) { return squeeze(x, {0}); }), HasSubstr("[squeeze] axis 0 of 'x0' is batch, not 1"));
  EXPECT_THAT(shape_of({2, 1}, [](Value x) { return squeeze(x, {0}); }), HasSubstr("is 2, not 1"));
  EXPECT_THAT(shape_of({2, 1}, [](Value x) { return squeeze(x, {2}); }), HasSubstr("axis 2 is out of range for 2 axes"));
  EXPECT_THAT(shape_of({2, 1}, [](Value x) { return squeeze(x, {1, -1}); }), HasSubstr("named twice"));
  EXPECT_THAT(shape_of({2}, [](Value x) { return expand_dims(x, {2}); }), HasSubstr("[expand_dims] axis 2 is out of range for 2 axes"));
  EXPECT_THAT(shape_of({2}, [](Value x) { return expand_dims(x, {0, -3}); }), HasSubstr("named twice"));
}

}  // namespace

}  // namespace belfry::test
