#include "tables.h"

namespace belfry::test {

OpTables broadcast_like_cases() {
  auto of = [](const char* name, Shape x, Shape like) { return OpCase{.name = name, .inputs = {real(std::move(x)), real(like)}, .outputs = {{f32, like}}}; };
  OpTable table{"broadcast_like",
                {of("row to rows", {3}, {kBatch, 3}), of("scalar to rows", {}, {kBatch, 3}), of("column", {kBatch, 1}, {kBatch, 4}), of("without rows", {3}, {2, 3}),
                 of("same size", {1, 3}, {3}), of("two row axes", {kBatch, 1}, {kBatch, kBatch}), of("second row axis", {kBatch}, {kBatch, kBatch}), of("time-major", {kBatch, 2}, {3, kBatch, 2})}};
  table.cases[4] = of("same size", {2, 3}, {2, 3});
  table.cases[0].refused = {{{{f32, {2}}, {f32, {3}}}, {"do not broadcast"}}, {{{f32, {2, 3}}, {f32, {3}}}, {"does not stretch"}}};
  return {table};
}

}  // namespace belfry::test
