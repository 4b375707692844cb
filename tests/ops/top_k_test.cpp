#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <belfry/ops/build.h>
#include <belfry/ops/cpu_kernels.h>

#include "built.h"
#include "tables.h"

namespace belfry::test {

OpTables top_k_cases() {
  const Dim B = kBatch;
  auto of = [](const char* name, Attributes a, Shape x, Shape y) {
    return OpCase{.name = name, .attributes = std::move(a), .inputs = {real(std::move(x))}, .outputs = {{f32, y}, {i32, y}}};
  };
  OpTable top{"top_k",
              {of("classes", {{"k", 3}}, {B, 5}, {B, 3}), of("all, smallest first", {{"k", 4}, {"largest", false}}, {2, 4}, {2, 4}),
               of("first axis", {{"k", 2}, {"axis", 0}}, {4, B, 2}, {2, B, 2}), of("along the rows", {{"k", 1}, {"axis", 0}}, {B, 2}, {1, 2}),
               of("along one of two row axes", {{"k", 1}, {"axis", 0}}, {B, B}, {1, B})}};
  top.cases.push_back({.name = "integers with ties", .attributes = {{"k", 4}}, .inputs = {below(3, {B, 6})}, .outputs = {{i32, {B, 4}}, {i32, {B, 4}}}});
  top.cases[0].refused = {{{{f32, {2, 3}}}, {"k is 4; axis 1 has 3 elements"}, {{"k", 4}}}, {{{f32, {2, 3}}}, {"k is 0"}, {{"k", 0}}},
                          {{{boolean, {2, 3}}}, {"not on bool"}}, {{{f32, {2, 3}}}, {"axis 2 is out of range"}, {{"axis", 2}}}};
  OpTable in{"in_top_k",
             {{.name = "classes", .attributes = {{"k", 2}}, .inputs = {below(5, {B}), real({B, 5})}, .outputs = {{boolean, {B}}},
               .refused = {{{{i32, {2}}, {f32, {3, 5}}}, {"targets need the axes of the predictions but for the last"}},
                           {{{f32, {2}}, {f32, {2, 5}}}, {"must hold integers"}},
                           {{{i32, {2}}, {f32, {2, 5}}}, {"k is 0"}, {{"k", 0}}},
                           {{{i32, {}}, {f32, {}}}, {"targets need the axes"}}}},
              {.name = "without rows, outside", .attributes = {{"k", 1}}, .inputs = {below(5, {2, 3}, i64), real({2, 3, 3})}, .outputs = {{boolean, {2, 3}}}},
              {.name = "classes are rows", .attributes = {{"k", 1}}, .inputs = {below(B, {2}), real({2, B})}, .outputs = {{boolean, {2}}}},
              {.name = "a square of rows", .attributes = {{"k", 1}}, .inputs = {below(B, {B}), real({B, B})}, .outputs = {{boolean, {B}}}}}};
  return {top, in};
}

namespace {

using testing::ElementsAre;

TEST(TopK, gives_equal_values_in_the_order_they_stand) {
  HostTensor x = HostTensor::of<float>({6}, {1, 3, 2, 3, 1, 3});
  auto of = [&](bool largest) { return built({x}, [&](auto v) { TopK t = top_k(v[0], 4, {.largest = largest}); return std::vector{t.values, t.indices}; }); };
  EXPECT_THAT(of(true)[0].data<float>(), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(of(true)[1].data<std::int32_t>(), ElementsAre(1, 3, 5, 2));
  EXPECT_THAT(of(false)[0].data<float>(), ElementsAre(1, 1, 2, 3));
  EXPECT_THAT(of(false)[1].data<std::int32_t>(), ElementsAre(0, 4, 2, 1));
}

TEST(TopK, takes_nan_for_the_largest) {
  float nan = std::nanf("");
  HostTensor x = HostTensor::of<float>({5}, {1, nan, INFINITY, nan, 2});
  auto indices = [&](bool largest) { return built({x}, [&](auto v) { return std::vector{top_k(v[0], 5, {.largest = largest}).indices}; })[0]; };
  EXPECT_THAT(indices(true).values<std::int32_t>(), ElementsAre(1, 3, 2, 4, 0));
  EXPECT_THAT(indices(false).values<std::int32_t>(), ElementsAre(0, 4, 2, 1, 3));
}

TEST(TopK, of_more_rows_than_there_are_is_an_error_of_the_run) {
  try {
    run_op(top_k_defs()[0], {.name = "three rows", .attributes = {{"k", 3}, {"axis", 0}}, .inputs = {real({kBatch})}, .outputs = {{f32, {3}}, {i32, {3}}}}, {counting({2})}, 2);
    ADD_FAILURE() << "was accepted";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("[top_k] k is 3; the axis has 2 elements"));
  }
}

TEST(InTopK, counts_ties_as_in_and_says_no_where_there_is_no_answer) {
  HostTensor p = HostTensor::of<float>({5, 3}, {1, 2, 2, 1, 2, 2, 3, 2, 1, 1, std::nanf(""), 0, 1, 2, 3}), t = HostTensor::of<std::int32_t>({5}, {1, 0, 1, 0, 3});
  EXPECT_THAT(built({t, p}, [](auto v) { return std::vector{in_top_k(v[0], v[1], 1)}; })[0].data<bool>(), ElementsAre(true, false, false, false, false));
  EXPECT_THAT(built({t, p}, [](auto v) { return std::vector{in_top_k(v[0], v[1], 3)}; })[0].data<bool>(), ElementsAre(true, true, true, false, false));
}

}  // namespace
}  // namespace belfry::test
