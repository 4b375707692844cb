#include "tables.h"

namespace belfry::test {

OpTables reshape_cases() {
  auto of = [](const char* name, Shape x, Shape y) { return OpCase{.name = name, .attributes = {{"shape", y}}, .inputs = {real(std::move(x))}, .outputs = {{f32, y}}}; };
  const Dim B = kBatch;
  OpTable t{"reshape",
            {of("flatten", {B, 2, 3}, {B, 6}), of("apart again", {B, 6}, {B, 2, 3}), of("without rows", {2, 3}, {6}), of("factor of rows", {B, 2, 3}, {2 * B, 3}), of("out of the factor", {2 * B, 3}, {B, 2, 3}), of("rows and ones", {B, 3}, {1, B, 1, 3}),
             of("rows lead no group before", {3, B, 2}, {3 * B, 2}), of("rows lead no group after", {3 * B, 2}, {3, B, 2}), of("two row axes", {B, B}, {B, B, 1}), of("rows stay behind", {2, 2, B}, {4, B}), of("to a scalar", {1, 1}, {}),
             of("both row axes to one group", {B, 2, B}, {B, 2 * B})}};
  t.cases[0].refused = {{{{f32, {2, 3}}}, {"cannot bring (2, 3) into the shape (7)"}, {{"shape", Shape{7}}}}, {{{f32, {B, 3}}}, {"cannot bring"}, {{"shape", Shape{3}}}}};
  return {t};
}

}  // namespace belfry::test
