#include <gtest/gtest.h>

#include <belfry/graph/contexts.h>
#include <belfry/graph/evaluate.h>
#include <belfry/ops/row_count/row_count.h>

#include "tables.h"

namespace belfry::test {

OpTables row_count_cases() {
  auto of = [](const char* name, Shape dims) { return OpCase{.name = name, .attributes = {{"dims", std::move(dims)}}, .outputs = {{f32, {}}}}; };
  auto weight = [](const char* name, Shape shape, Shape count) { return OpCase{.name = name, .attributes = {{"shape", shape}, {"count", std::move(count)}}, .outputs = {{f32, shape}}}; };
  OpTables out = {{"row_count", {of("rows", {kBatch}), of("rows and sizes", {2 * kBatch, 3}), of("two row axes", {kBatch, kBatch}), of("nothing", {})}},
                  {"row_weight", {weight("rows", {kBatch}, {}), weight("rows and sizes", {kBatch, 1}, {3}), weight("second row axis counted", {kBatch, 1}, {kBatch}), weight("factor", {2 * kBatch}, {2})}}};
  out[0].cases[0].refused = {{{{f32, {}}}, {"takes 0 inputs, not 1"}}, {{}, {"a count is computed in"}, {{"dtype", bf16}}}};
  out[1].cases[0].refused = {{{}, {"one row axis"}, {{"shape", Shape{3}}}}, {{}, {"a count is computed in"}, {{"dtype", f16}}}, {{}, {"one row axis"}, {{"shape", Shape{kBatch, kBatch}}}}};
  return out;
}

TEST(RowWeight, weighs_as_combine_says) {
  OpDef def = row_weight_def();
  Attributes attributes = checked(def.attributes, {{"shape", Shape{kBatch}}, {"count", Shape{2}}, {"dtype", f64}}, "row_weight");
  auto weights = [&](Combine combine) {
    return evaluate(def, attributes, {}, {{f64, {kBatch}}}, {{f64, {3}}}, Share{.first_row = 0, .rows = 3, .batch = 5, .towers = 2, .combine = combine})[0];
  };
  EXPECT_EQ(weights(Combine::global_mean).values<double>()[2], 1.0 / 10);
  EXPECT_EQ(weights(Combine::tower_mean).values<double>()[2], 1.0 / 12);
  EXPECT_EQ(weights(Combine::tower_sum).values<double>()[2], 1.0 / 6);
}

}  // namespace belfry::test
