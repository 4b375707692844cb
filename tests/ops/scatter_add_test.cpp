#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/ops/build.h>

#include "built.h"
#include "tables.h"

namespace belfry::test {

OpTables scatter_add_cases() {
  const Dim B = kBatch;
  auto of = [](const char* name, Shape x, CaseInput at, Shape updates) {
    return OpCase{.name = name, .inputs = {real(x), std::move(at), real(std::move(updates))}, .outputs = {{f32, x}}};
  };
  OpTable t{"scatter_add",
            {of("rows of updates", {4, 3}, below(4, {B, 2}), {B, 2, 3}), of("without rows", {5}, below(5, {3}, i64), {3}),
             of("one row", {4, 2}, below(4, {}), {2}), of("into rows", {B, 2}, below(B, {3}, u8), {3, 2}),
             of("rows behind the table", {4, B}, below(4, {3}), {3, B}), of("rows in rows", {B, 2}, below(B, {B}), {B, 2})}};
  t.cases.push_back({.name = "integers", .inputs = {whole_numbers({4}), below(4, {6}), whole_numbers({6})}, .outputs = {{i32, {4}}}});
  t.cases[0].refused = {{{{f32, {4, 3}}, {i32, {2}}, {f32, {2, 4}}}, {"updates must be of shape (2, 3)"}},
                        {{{f32, {4, 3}}, {f32, {2}}, {f32, {2, 3}}}, {"must hold integers"}},
                        {{{f32, {4, 3}}, {i32, {2}}, {f64, {2, 3}}}, {"x and updates differ in dtype"}},
                        {{{f32, {}}, {i32, {2}}, {f32, {2}}}, {"x needs an axis of rows"}},
                        {{{boolean, {4}}, {i32, {2}}, {boolean, {2}}}, {"cast first"}}};
  return {t};
}

TEST(ScatterAdd, adds_up_what_meets_in_a_row_and_names_an_index_outside) {
  HostTensor x = HostTensor::of<float>({3}, {1, 2, 3}), updates = HostTensor::of<float>({3}, {10, 20, 30});
  auto of = [&](std::int32_t last) { return built({x, HostTensor::of<std::int32_t>({3}, {2, 0, last}), updates}, [](auto v) { return std::vector{scatter_add(v[0], v[1], v[2])}; })[0]; };
  EXPECT_THAT(of(2).values<float>(), testing::ElementsAre(21, 2, 43));
  for (std::int32_t wrong : {3, -1}) {
    try {
      of(wrong);
      ADD_FAILURE() << "was accepted";
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("[scatter_add] index " + std::to_string(wrong) + " at position 2 is outside the table of 3 rows"));
    }
  }
}

}  // namespace belfry::test
