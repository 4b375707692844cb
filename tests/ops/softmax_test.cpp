#include "tables.h"

namespace belfry::test {

OpTables softmax_cases() {
  OpTables out;
  for (const char* op : {"softmax", "log_softmax"}) {
    auto of = [](const char* name, Shape x, int axis) { return OpCase{.name = name, .attributes = {{"axis", axis}}, .inputs = {real(x)}, .outputs = {{f32, x}}, .exact_sums = false}; };
    OpTable t{op, {of("classes", {kBatch, 5}, -1), of("middle axis", {kBatch, 3, 2}, 1), of("along the rows", {kBatch, 3}, 0), of("two row axes", {kBatch, kBatch}, 0), of("two row axes, last", {kBatch, kBatch}, -1),
                   of("without rows", {2, 4}, -1), of("time-major", {3, kBatch, 2}, 0), of("nothing along the axis", {kBatch, 0}, -1)}};
    t.cases[0].refused = {{{{f32, {2, 4}}}, {"axis 3 is out of range for shape (2, 4)"}, {{"axis", 3}}}, {{{i32, {2, 4}}}, {"must be f32 or f64"}}};
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace belfry::test
