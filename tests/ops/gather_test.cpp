#include <gtest/gtest.h>

#include <belfry/graph/error.h>
#include <belfry/ops/gather/gather.h>

#include "tables.h"

namespace belfry::test {

OpTables gather_cases() {
  auto scatter = [](const char* name, CaseInput at, Shape dy, const Dim& rows, Shape table) {
    return OpCase{.name = name, .attributes = {{"rows", Shape{rows}}}, .inputs = {std::move(at), real(std::move(dy))}, .outputs = {{f32, std::move(table)}}};
  };
  OpTable gather{"gather",
                 {{.name = "embedding", .inputs = {real({7, 3}), below(7, {kBatch, 2})}, .outputs = {{f32, {kBatch, 2, 3}}},
                   .refused = {{{{f32, {}}, {i32, {2}}}, {"axis of rows"}}, {{{f32, {3}}, {f32, {2}}}, {"must hold integers"}}}},
                  {.name = "time-major, i64", .inputs = {real({4}), below(4, {2, kBatch}, i64)}, .outputs = {{f32, {2, kBatch}}}},
                  {.name = "without rows", .inputs = {real({4, 2}), below(4, {3})}, .outputs = {{f32, {3, 2}}}},
                  {.name = "rows as the table", .inputs = {real({kBatch, 2}), below(kBatch, {kBatch})}, .outputs = {{f32, {kBatch, 2}}}},
                  {.name = "table with rows behind", .inputs = {real({4, kBatch}), below(4, {3})}, .outputs = {{f32, {3, kBatch}}}},
                  {.name = "second axis of rows", .attributes = {{"axis", 1}}, .inputs = {real({kBatch, 5, 2}), below(5, {2, 2})}, .outputs = {{f32, {kBatch, 2, 2, 2}}}},
                  {.name = "last axis by rows", .attributes = {{"axis", -1}}, .inputs = {real({3, 4}), below(4, {kBatch})}, .outputs = {{f32, {3, kBatch}}}},
                  {.name = "second axis, rows on both sides", .attributes = {{"axis", 1}}, .inputs = {real({kBatch, 4, 2}), below(4, {kBatch})}, .outputs = {{f32, {kBatch, kBatch, 2}}}},
                  {.name = "one row", .attributes = {{"axis", 1}}, .inputs = {real({kBatch, 4}), below(4, {})}, .outputs = {{f32, {kBatch}}}},
                  {.name = "indices of two axes before rows", .inputs = {real({4, kBatch}), below(4, {3, 2})}, .outputs = {{f32, {3, 2, kBatch}}}},
                  {.name = "halves", .attributes = {{"axis", 1}}, .inputs = {{{f16, {kBatch, 4}}}, below(4, {3})}, .outputs = {{f16, {kBatch, 3}}}, .keep_dtypes = true},
                  {.name = "integers from bytes", .inputs = {whole_numbers({5, 2}), below(5, {kBatch}, u8)}, .outputs = {{i32, {kBatch, 2}}}}}};
  OpTable gradient{"gather_gradient",
                   {scatter("dense: many rows", below(2, {kBatch, 3}), {kBatch, 3, 2}, 2, {2, 2}), scatter("sparse: few rows", below(50, {kBatch, 2}), {kBatch, 2, 2}, 50, {50, 2}),
                    scatter("without rows", below(4, {6}), {6, 2}, 4, {4, 2}), scatter("into rows", below(kBatch, {kBatch}), {kBatch, 2}, kBatch, {kBatch, 2}), scatter("time-major", below(2, {3, kBatch}), {3, kBatch}, 2, {2}),
                    scatter("row values with rows", below(4, {5}), {5, kBatch}, 4, {4, kBatch})}};
  auto along = [&](const char* name, CaseInput at, Shape dy, const Dim& rows, Shape table) {
    gradient.cases.push_back(scatter(name, std::move(at), std::move(dy), rows, std::move(table)));
    gradient.cases.back().attributes.set("axis", 1);
  };
  gradient.cases.push_back(scatter("indices of two axes before rows", below(4, {3, 2}), {3, 2, kBatch}, 4, {4, kBatch}));
  along("second axis of rows", below(5, {2, 2}), {kBatch, 2, 2, 2}, 5, {kBatch, 5, 2});
  along("second axis by rows, dense", below(2, {kBatch, 2}), {3, kBatch, 2}, 2, {3, 2});
  along("second axis, rows on both sides", below(4, {kBatch}), {kBatch, kBatch, 2}, 4, {kBatch, 4, 2});
  along("one row of rows", below(4, {}), {kBatch}, 4, {kBatch, 4});
  gather.cases[0].refused.push_back({{{f32, {3}}, {i32, {2}}}, {"axis 1 is out of range"}, {{"axis", 1}}});
  gradient.cases[0].refused = {{{{i32, {2}}, {f32, {3, 2}}}, {"behind those before the axis"}, {{"axis", 2}}}, {{{i32, {2}}, {f32, {3, 2}}}, {"axes of the indices"}, {{"axis", -1}}},
                               {{{i32, {2, 2}}, {f32, {2}}}, {"axes of the indices"}}, {{{f32, {2}}, {f32, {2}}}, {"must hold integers"}}, {{{i32, {7}}, {f32, {5, 3}}}, {"other sizes than the indices (7)"}},
                               {{{i32, {2}}, {i32, {2}}}, {"must be f32 or f64"}}};
  return {gather, gradient};
}

TEST(Gather, names_the_index_that_is_outside_the_table) {
  OpDef def = gather_defs()[0];
  OpCase c = cases_of("gather")[2];
  auto t = HostTensor::of<float>({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  for (std::int32_t wrong : {4, -1}) {
    try {
      run_op(def, c, {t, HostTensor::of<std::int32_t>({3}, {0, wrong, 1})}, 1);
      ADD_FAILURE() << "was accepted";
    } catch (const UserError& e) {
      EXPECT_EQ(std::string(e.what()), "[gather] index " + std::to_string(wrong) + " at position 1 is outside the table of 4 rows");
    }
  }
}

}  // namespace belfry::test
