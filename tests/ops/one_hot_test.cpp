#include "tables.h"

namespace belfry::test {

OpTables one_hot_cases() {
  auto of = [](const char* name, CaseInput x, Dim depth, Shape y) { return OpCase{.name = name, .attributes = {{"depth", Shape{depth}}}, .inputs = {std::move(x)}, .outputs = {{f32, std::move(y)}}}; };
  OpTable t{"one_hot",
            {of("labels", below(5, {kBatch}), 5, {kBatch, 5}), of("outside the depth", below(8, {kBatch, 2}), 5, {kBatch, 2, 5}), of("without rows", below(3, {4}), 3, {4, 3}),
             of("depth of rows", below(kBatch, {kBatch}), kBatch, {kBatch, kBatch}), of("scalar, i64", below(3, {}, i64), 3, {3})}};
  t.cases[0].refused = {{{{f32, {2}}}, {"must hold integers"}}, {{{i32, {2}}}, {"depth is one dimension"}, {{"depth", Shape{2, 3}}}}};
  return {t};
}

}  // namespace belfry::test
