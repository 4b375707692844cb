#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/ops/build.h>

#include "tables.h"

namespace belfry::test {

OpTables take_along_axis_cases() {
  const Dim B = kBatch;
  struct Row {
    const char* name;
    int axis;
    Shape x, indices;
    Dim n;
    DType dtype = i32;
  };
  OpTable take{"take_along_axis", {}}, gradient{"take_along_axis_gradient", {}};
  for (const Row& r : std::vector<Row>{{"classes of rows", -1, {B, 5}, {B, 2}, 5},
                                       {"without rows", 0, {4, 3}, {2, 3}, 4, i64},
                                       {"rows of the indices", 0, {4, 2}, {B, 2}, 4},
                                       {"many of few", 0, {2, 2}, {3 * B, 2}, 2, u8},
                                       {"along the rows", 0, {B, 2}, {B, 2}, B},
                                       {"few of the rows", 0, {B}, {1}, B},
                                       {"along one of two row axes", 1, {B, B}, {B, 3}, B}}) {
    CaseInput at = below(r.n, r.indices, r.dtype);
    take.cases.push_back({.name = r.name, .attributes = {{"axis", r.axis}}, .inputs = {real(r.x), at}, .outputs = {{f32, r.indices}}});
    gradient.cases.push_back({.name = r.name, .attributes = {{"axis", r.axis}}, .inputs = {at, real(r.indices), real(r.x)}, .outputs = {{f32, r.x}}});
  }
  take.cases.push_back({.name = "bools", .inputs = {bits({B, 4}), below(4, {B, 2})}, .outputs = {{boolean, {B, 2}}}});
  take.cases.push_back({.name = "halves", .inputs = {{{bf16, {B, 4}}}, below(4, {B, 2})}, .outputs = {{bf16, {B, 2}}}, .keep_dtypes = true});
  take.cases[0].refused = {{{{f32, {B, 5}}, {i32, {3, 2}}}, {"the indices (3, 2) do not lie beside (batch, 5) along axis 1"}},
                           {{{f32, {B, 5}}, {i32, {B}}}, {"do not lie beside"}},
                           {{{f32, {B, 5}}, {f32, {B, 2}}}, {"must hold integers"}},
                           {{{f32, {B, 5}}, {i32, {B, 2}}}, {"axis 2 is out of range"}, {{"axis", 2}}}};
  gradient.cases[0].refused = {{{{i32, {B, 2}}, {f32, {B, 3}}, {f32, {B, 5}}}, {"dy has not the shape of the indices"}}, {{{i32, {2, 2}}, {f32, {2, 2}}, {f32, {B, 5}}}, {"do not lie beside"}}};
  return {take, gradient};
}

TEST(TakeAlongAxis, names_the_index_that_is_outside) {
  OpCase c = cases_of("take_along_axis")[1];
  c.inputs[1].type.dtype = i32;
  auto x = HostTensor::of<float>({4, 3}, std::vector<float>(12, 1));
  for (std::int32_t wrong : {4, -1}) {
    try {
      run_op(take_along_axis_defs()[0], c, {x, HostTensor::of<std::int32_t>({2, 3}, {0, 1, 2, 3, wrong, 0})}, 1);
      ADD_FAILURE() << "was accepted";
    } catch (const UserError& e) {
      EXPECT_EQ(std::string(e.what()), "[take_along_axis] index " + std::to_string(wrong) + " at position 4 is outside an axis of 4");
    }
  }
}

}  // namespace belfry::test
