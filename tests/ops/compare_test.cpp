#include "tables.h"

namespace belfry::test {

OpTables compare_cases() {
  OpTables out;
  for (const char* op : {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}) {
    auto of = [&](const char* name, CaseInput a, CaseInput b, Shape z) { return OpCase{.name = name, .inputs = {std::move(a), std::move(b)}, .outputs = {{boolean, std::move(z)}}}; };
    OpTable table{op,
                  {of("integers", below(3, {kBatch}), below(3, {kBatch}), {kBatch}), of("floats", real({kBatch, 3}), real({3}), {kBatch, 3}),
                   of("without rows", real({3}), real({2, 3}), {2, 3}), of("two row axes", below(3, {kBatch, 1}), below(3, {1, kBatch}), {kBatch, kBatch}), of("bools", bits({kBatch}), bits({kBatch}), {kBatch})}};
    table.cases[0].refused = {{{{i32, {2}}, {i64, {2}}}, {"dtypes i32 and i64"}}, {{{i32, {2}}, {i32, {3}}}, {"do not broadcast"}}};
    out.push_back(std::move(table));
  }
  for (const char* op : {"logical_and", "logical_or"}) {
    auto of = [&](const char* name, Shape a, Shape b, Shape z) { return OpCase{.name = name, .inputs = {bits(std::move(a)), bits(std::move(b))}, .outputs = {{boolean, std::move(z)}}}; };
    OpTable table{op, {of("rows", {kBatch, 3}, {kBatch, 3}, {kBatch, 3}), of("rows and one row", {kBatch, 3}, {3}, {kBatch, 3}), of("without rows", {3}, {2, 3}, {2, 3}), of("two row axes", {kBatch, 1}, {1, kBatch}, {kBatch, kBatch})}};
    table.cases[0].refused = {{{{f32, {2}}, {f32, {2}}}, {"works on bool"}}, {{{boolean, {2}}, {i32, {2}}}, {"dtypes bool and i32"}}, {{{boolean, {2}}, {boolean, {3}}}, {"do not broadcast"}}};
    out.push_back(std::move(table));
  }
  auto negated = [](const char* name, Shape x) { return OpCase{.name = name, .inputs = {bits(x)}, .outputs = {{boolean, x}}}; };
  out.push_back({"logical_not", {negated("rows", {kBatch, 3}), negated("without rows", {3}), negated("two row axes", {kBatch, kBatch}), negated("scalar", {})}});
  out.back().cases[0].refused = {{{{f32, {2}}}, {"works on bool"}}};
  auto choose = [](const char* name, Shape c, Shape a, Shape b, Shape y) { return OpCase{.name = name, .inputs = {bits(std::move(c)), real(std::move(a)), real(std::move(b))}, .outputs = {{f32, std::move(y)}}}; };
  OpTable table{"where",
                {choose("rows", {kBatch, 3}, {kBatch, 3}, {kBatch, 3}, {kBatch, 3}), choose("scalar else", {kBatch, 3}, {kBatch, 3}, {}, {kBatch, 3}), choose("condition per row", {kBatch, 1}, {3}, {kBatch, 3}, {kBatch, 3}),
                 choose("without rows", {3}, {3}, {2, 3}, {2, 3}), choose("two row axes", {kBatch, kBatch}, {kBatch, 1}, {1, kBatch}, {kBatch, kBatch})}};
  table.cases[0].refused = {{{{f32, {2}}, {f32, {2}}, {f32, {2}}}, {"condition must be bool"}}, {{{boolean, {2}}, {f32, {2}}, {f64, {2}}}, {"differ in dtype"}}, {{{boolean, {2}}, {f32, {3}}, {f32, {3}}}, {"do not broadcast"}}};
  out.push_back(std::move(table));
  return out;
}

}  // namespace belfry::test
