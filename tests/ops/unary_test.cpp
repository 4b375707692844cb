#include "tables.h"

namespace belfry::test {

namespace {

/// An op, its attributes and where its inputs are drawn.
struct Row {
  const char* op;
  bool integers = false, exact_sums = false;
  double low = -2, high = 2;
  Attributes attributes = {};
  std::vector<Attributes> refused = {};  ///< attributes that inference refuses, with "min is above max"
};

CaseInput drawn(const Row& r, Shape shape) { return {{f32, std::move(shape)}, r.low, r.high}; }

}  // namespace

OpTables unary_cases() {
  OpTables out;
  const Attributes bounds = {{"min", -0.5}, {"max", 1.0}}, crossed = {{"min", 1.0}, {"max", 0.5}};
  const std::vector<Row> rows = {
      {"neg", true, true},
      {"abs", true, true},
      {"sign", true, true},
      {"square", true, true},
      {"floor", false, true},
      {"ceil", false, true},
      {"round", false, true},
      {"exp"},
      {"log", false, false, 0.25, 2},
      {"log1p", false, false, -0.5, 2},
      {"sqrt", false, false, 0.25, 2},
      {"rsqrt", false, false, 0.25, 2},
      {"reciprocal", false, false, 0.25, 2},
      {"sin"},
      {"cos"},
      {"erf"},
      {"tanh"},
      {"sigmoid"},
      {"softplus", false, false, -100, 100},
      {"silu", false, false, -8, 8},
      {"gelu", false, false, -5, 5},
      {"gelu_tanh", false, false, -5, 5},
      {"relu", false, true},
      {"relu6", false, true, -4, 10},
      {"leaky_relu", false, true, -2, 2, {{"slope", 0.25}}},
      {"elu", false, false, -3, 3, {{"alpha", 1.5}}},
      {"clip", false, true, -2, 2, bounds, {crossed}},
  };
  for (const Row& r : rows) {
    auto of = [&](const char* what, Shape x) { return OpCase{.name = what, .attributes = r.attributes, .inputs = {drawn(r, x)}, .outputs = {{f32, x}}, .exact_sums = r.exact_sums}; };
    OpTable t{r.op, {of("rows", {kBatch, 4}), of("without rows", {3}), of("two row axes", {kBatch, kBatch}), of("scalar", {}), of("rows behind", {2, kBatch})}};
    t.cases[0].refused = {{{{boolean, {2}}}, {"must be f32 or f64"}}};
    if (r.integers) t.cases.push_back({.name = "integers", .inputs = {whole_numbers({3})}, .outputs = {{i32, {3}}}});
    else t.cases[0].refused.push_back({{{i32, {2}}}, {"must be f32 or f64"}});
    for (const Attributes& a : r.refused) t.cases[0].refused.push_back({{{f32, {2}}}, {"min is above max"}, a});
    if (std::string(r.op) == "leaky_relu" || std::string(r.op) == "elu") t.cases.push_back({.name = "without attributes", .inputs = {drawn(r, {kBatch})}, .outputs = {{f32, {kBatch}}}, .exact_sums = false});
    out.push_back(std::move(t));
  }
  const std::vector<Row> gradients = {
      {"relu_gradient", false, true},
      {"relu6_gradient", false, true, -4, 10},
      {"leaky_relu_gradient", false, true, -2, 2, {{"slope", 0.25}}},
      {"elu_gradient", false, true, -2, 2, {{"alpha", 1.5}}},
      {"clip_gradient", false, true, -2, 2, bounds, {crossed}},
  };
  for (const Row& r : gradients) {
    auto of = [&](const char* what, Shape x) { return OpCase{.name = what, .attributes = r.attributes, .inputs = {real(x), drawn(r, x)}, .outputs = {{f32, x}}}; };
    OpTable t{r.op, {of("rows", {kBatch, 4}), of("without rows", {3}), of("two row axes", {kBatch, kBatch})}};
    t.cases[0].refused = {{{{f32, {2}}, {f32, {3}}}, {"differ in shape"}}, {{{f32, {2}}, {f64, {2}}}, {"dtypes f32 and f64"}}};
    for (const Attributes& a : r.refused) t.cases[0].refused.push_back({{{f32, {2}}, {f32, {2}}}, {"min is above max"}, a});
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace belfry::test
