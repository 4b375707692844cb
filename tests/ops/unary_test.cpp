#include "tables.h"

namespace belfry::test {

OpTables unary_cases() {
  OpTables out;
  for (const char* op : {"neg", "exp", "log", "sqrt", "square", "relu", "tanh", "sigmoid"}) {
    std::string name = op;
    bool integers = name == "neg" || name == "square", sums = integers || name == "relu";
    auto of = [&](const char* what, Shape x) { return OpCase{.name = what, .inputs = {name == "log" || name == "sqrt" ? positive(x) : real(x)}, .outputs = {{f32, x}}, .exact_sums = sums}; };
    OpTable t{op, {of("rows", {kBatch, 4}), of("without rows", {3}), of("two row axes", {kBatch, kBatch}), of("scalar", {}), of("rows behind", {2, kBatch})}};
    t.cases[0].refused = {{{{boolean, {2}}}, {"must be f32 or f64"}}};
    if (integers) t.cases.push_back({.name = "integers", .inputs = {whole_numbers({3})}, .outputs = {{i32, {3}}}});
    else t.cases[0].refused.push_back({{{i32, {2}}}, {"must be f32 or f64"}});
    out.push_back(std::move(t));
  }
  auto of = [](const char* name, Shape x) { return OpCase{.name = name, .inputs = {real(x), real(x)}, .outputs = {{f32, x}}}; };
  OpTable t{"relu_gradient", {of("rows", {kBatch, 4}), of("without rows", {3}), of("two row axes", {kBatch, kBatch})}};
  t.cases[0].refused = {{{{f32, {2}}, {f32, {3}}}, {"differ in shape"}}, {{{f32, {2}}, {f64, {2}}}, {"dtypes f32 and f64"}}};
  out.push_back(std::move(t));
  return out;
}

}  // namespace belfry::test
