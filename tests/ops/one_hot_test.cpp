#include "tables.h"

namespace belfry::test {

OpTables one_hot_cases() {
  auto of = [](const char* name, CaseInput x, const Dim& depth, Shape y) { return OpCase{.name = name, .attributes = {{"depth", Shape{depth}}}, .inputs = {std::move(x)}, .outputs = {{f32, std::move(y)}}}; };
  OpTable t{"one_hot",
            {of("labels", below(5, {kBatch}), 5, {kBatch, 5}), of("outside the depth", below(8, {kBatch, 2}), 5, {kBatch, 2, 5}), of("without rows", below(3, {4}), 3, {4, 3}),
             of("depth of rows", below(kBatch, {kBatch}), kBatch, {kBatch, kBatch}), of("scalar, i64", below(3, {}, i64), 3, {3})}};
  for (auto [axis, y] : {std::pair<int, Shape>{0, {5, kBatch, 2}}, {1, {kBatch, 5, 2}}, {-2, {kBatch, 5, 2}}}) {
    t.cases.push_back(of("on and off along an axis", below(6, {kBatch, 2}), 5, y));
    t.cases.back().attributes = {{"depth", Shape{5}}, {"axis", axis}, {"on", 3.0}, {"off", -1.5}};
  }
  t.cases.push_back(of("before the rows, depth of rows", below(kBatch, {kBatch}), kBatch, {kBatch, kBatch}));
  t.cases.back().attributes.set("axis", 0);
  t.cases[0].no_gradient_check = "its input is of integers";
  t.cases[0].refused = {{{{i32, {2}}}, {"axis 2 is out of range for a result of 2 axes"}, {{"axis", 2}}},
                        {{{f32, {2}}}, {"must hold integers"}}, {{{i32, {2}}}, {"for storage"}, {{"dtype", f16}}}, {{{i32, {2}}}, {"on is 3000000000, which is none of i32"}, {{"dtype", i32}, {"on", 3e9}}}, {{{i32, {2}}}, {"depth is one dimension"}, {{"depth", Shape{2, 3}}}}};
  return {t};
}

}  // namespace belfry::test
