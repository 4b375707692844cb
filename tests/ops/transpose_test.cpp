#include "tables.h"

namespace belfry::test {

OpTables transpose_cases() {
  auto of = [](const char* name, Shape x, Integers order, Shape y) { return OpCase{.name = name, .attributes = {{"order", std::move(order)}}, .inputs = {real(std::move(x))}, .outputs = {{f32, std::move(y)}}}; };
  OpTable t{"transpose", {of("rows to the back", {kBatch, 2, 3}, {1, 2, 0}, {2, 3, kBatch}), of("rows stay", {kBatch, 2, 3}, {0, -1, 1}, {kBatch, 3, 2}), of("without rows", {2, 3}, {1, 0}, {3, 2}), of("two row axes", {kBatch, kBatch}, {1, 0}, {kBatch, kBatch}),
                          of("heads", {2 * kBatch, 2, 3}, {1, 0, 2}, {2, 2 * kBatch, 3})}};
  t.cases[0].refused = {{{{f32, {2, 3}}}, {"order names 1 axes of 2"}, {{"order", Integers{0}}}}, {{{f32, {2, 3}}}, {"names an axis twice"}, {{"order", Integers{0, -2}}}}, {{{f32, {2, 3}}}, {"out of range"}, {{"order", Integers{0, 2}}}}};
  return {t};
}

}  // namespace belfry::test
