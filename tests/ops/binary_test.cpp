#include "tables.h"

namespace belfry::test {

OpTables binary_cases() {
  OpTables out;
  for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum", "squared_difference", "pow", "sigmoid_cross_entropy"}) {
    bool divides = op == std::string("div"), power = op == std::string("pow"), smooth = power || op == std::string("sigmoid_cross_entropy");
    auto a = [&](Shape shape) { return power ? positive(std::move(shape)) : real(std::move(shape)); };
    auto b = [&](Shape shape) { return divides ? divisor(std::move(shape)) : real(std::move(shape)); };
    auto of = [&](const char* name, Shape x, Shape y, Shape z) { return OpCase{.name = name, .inputs = {a(std::move(x)), b(std::move(y))}, .outputs = {{f32, std::move(z)}}, .exact_sums = !smooth}; };
    OpTable table{op,
                  {of("rows", {kBatch, 4}, {kBatch, 4}, {kBatch, 4}), of("rows and bias", {kBatch, 2, 3}, {3}, {kBatch, 2, 3}), of("bias and rows", {3}, {kBatch, 3}, {kBatch, 3}),
                   of("rows and scalar", {kBatch, 3}, {}, {kBatch, 3}), of("column and row", {kBatch, 1}, {1, 4}, {kBatch, 4}), of("without rows", {2, 3}, {2, 3}, {2, 3}),
                   of("enlarged", {3}, {2, 3}, {2, 3}), of("enlarged by the first", {2, 3}, {3}, {2, 3}), of("scalars", {}, {}, {}),
                   of("two row axes", {kBatch, kBatch}, {kBatch, kBatch}, {kBatch, kBatch}), of("outer over rows", {kBatch, 1}, {1, kBatch}, {kBatch, kBatch}),
                   of("rows along the last axis", {2, kBatch}, {kBatch}, {2, kBatch}), of("factor of rows", {2 * kBatch, 3}, {2 * kBatch, 3}, {2 * kBatch, 3})}};
    table.cases[0].refused = {{{{f32, {2, 3}}, {f32, {2, 4}}}, {"(2, 3) and (2, 4) do not broadcast"}},
                              {{{f32, {kBatch, 3}}, {f32, {2 * kBatch, 3}}}, {"do not broadcast"}},
                              {{{f32, {2}}, {i32, {2}}}, {"dtypes f32 and i32"}},
                              {{{boolean, {2}}, {boolean, {2}}}, {smooth ? "must be f32 or f64" : "cast first"}},
                              {{{f32, {2}}}, {"takes 2 inputs, not 1"}}};
    auto y = [&](Shape shape) { return divides ? CaseInput{{i32, std::move(shape)}, 1, 4} : whole_numbers(std::move(shape)); };
    if (!smooth)
      for (const Shape& shape : {Shape{kBatch}, Shape{3}})
        table.cases.push_back({.name = shape[0].symbolic() ? "integers" : "integers without rows", .inputs = {whole_numbers(shape), y(shape)}, .outputs = {{i32, shape}}});
    out.push_back(std::move(table));
  }
  return out;
}

}  // namespace belfry::test
