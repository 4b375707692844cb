#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "numeric_gradient.h"
#include "tables.h"

namespace belfry::test {

OpTables argmax_cases() {
  OpTable greatest{
      "argmax",
      {{.name = "classes", .inputs = {real({kBatch, 5})}, .outputs = {{i32, {kBatch}}},
        .refused = {{{{f32, {2, 4}}}, {"axis 3 is out of range", "(2, 4)"}, {{"axis", 3}}}, {{{boolean, {2}}}, {"not on bool"}}, {{{f32, {2, 0}}}, {"axis is empty"}}}},
       {.name = "first axis", .attributes = {{"axis", 0}}, .inputs = {real({3, kBatch})}, .outputs = {{i32, {kBatch}}}},
       {.name = "along the rows", .attributes = {{"axis", 0}}, .inputs = {real({kBatch, 3})}, .outputs = {{i32, {3}}}},
       {.name = "along one of two row axes", .attributes = {{"axis", -2}}, .inputs = {real({kBatch, kBatch})}, .outputs = {{i32, {kBatch}}}},
       {.name = "without rows", .inputs = {real({2, 3})}, .outputs = {{i32, {2}}}},
       {.name = "integers with ties", .inputs = {below(3, {kBatch, 4})}, .outputs = {{i32, {kBatch}}}},
       {.name = "the last of ties", .attributes = {{"last", true}}, .inputs = {below(3, {kBatch, 4})}, .outputs = {{i32, {kBatch}}}}}};
  OpTable least = greatest;
  least.op = "argmin";
  return {greatest, least};
}

TEST(Argmax, and_argmin_take_the_first_of_equal_ones_or_the_last) {
  HostTensor x = HostTensor::of<float>({5}, {2, 3, 1, 3, 1});
  auto of = [&](const char* op, bool last) { return reference_of(op, {x}, {{"last", last}})[0].item<std::int32_t>(); };
  EXPECT_EQ(of("argmax", false), 1);
  EXPECT_EQ(of("argmax", true), 3);
  EXPECT_EQ(of("argmin", false), 2);
  EXPECT_EQ(of("argmin", true), 4);
}

}  // namespace belfry::test
