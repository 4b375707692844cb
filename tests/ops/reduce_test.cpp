#include "tables.h"

namespace belfry::test {

OpTables reduce_cases() {
  OpTables out;
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_mean"}) {
    bool mean = op == std::string("reduce_mean");
    auto of = [&](const char* name, Shape x, Integers axes, bool keep, Shape y) {
      return OpCase{.name = name, .attributes = {{"axes", std::move(axes)}, {"keep", keep}}, .inputs = {real(std::move(x))}, .outputs = {{f32, std::move(y)}}, .exact_sums = !mean};
    };
    OpTable t{op,
              {of("inside a row", {kBatch, 4}, {1}, false, {kBatch}), of("over rows", {kBatch, 4}, {0}, false, {4}), of("over rows, kept", {kBatch, 4}, {0}, true, {1, 4}), of("all", {kBatch, 2, 3}, {}, false, {}),
               of("all, kept", {kBatch, 3}, {}, true, {1, 1}), of("last axis by -1", {kBatch, 2, 3}, {-1}, false, {kBatch, 2}), of("without rows", {2, 3}, {1}, false, {2}), of("without rows, kept", {2, 3}, {-2}, true, {1, 3}),
               of("one of two row axes", {kBatch, kBatch}, {0}, false, {kBatch}), of("both row axes", {kBatch, kBatch}, {}, false, {}), of("time-major", {3, kBatch, 2}, {0}, false, {kBatch, 2}),
               of("time-major over rows", {3, kBatch, 2}, {1, 0}, false, {2}), of("factor of rows", {2 * kBatch, 3}, {0}, false, {3}), of("second of two row axes, kept", {kBatch, 2, kBatch}, {2}, true, {kBatch, 2, 1})}};
    t.cases[0].refused = {{{{f32, {2, 3}}}, {"axes has 2, out of range"}, {{"axes", Integers{2}}}},
                          {{{f32, {2, 3}}}, {"names an axis twice"}, {{"axes", Integers{1, -1}}}},
                          {{{boolean, {2}}}, {mean ? "must be f32 or f64" : "cast first"}, {{"axes", Integers{}}}}};
    if (!mean) t.cases.push_back({.name = "integers", .inputs = {whole_numbers({kBatch, 2})}, .outputs = {{i32, {}}}});
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace belfry::test
