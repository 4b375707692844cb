#include <gtest/gtest.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/ops/build.h>

#include "says.h"
#include "tables.h"

namespace belfry::test {

OpTables source_cases() {
  const std::string bound = "its bytes are bound by the executor";
  HostTensor t = HostTensor::of<float>({2, 2}, {1, 2, 3, 4});
  return {{"input",
           {{.name = "rows", .attributes = {{"dtype", f32}, {"shape", Shape{kBatch, 3}}}, .outputs = {{f32, {kBatch, 3}}},
             .refused = {{{}, {"negative size"}, {{"shape", Shape{-1}}}}, {{{f32, {}}}, {"takes 0 inputs, not 1"}}}, .no_reference = bound}}},
          {"variable",
           {{.name = "matrix", .attributes = {{"dtype", f32}, {"shape", Shape{2, 3}}}, .outputs = {{f32, {2, 3}}},
             .refused = {{{}, {"fixed shape, not (batch)"}, {{"shape", Shape{kBatch}}}}, {{}, {"a seed is one i64"}, {{"init", "seed"}}},
                         {{}, {"a seed is one i64"}, {{"init", "seed"}, {"dtype", i64}, {"shape", Shape{0}}}},
                         {{}, {"init 'normal' without its deviation draws zeros alone", "init_value"}, {{"init", "normal"}}}, {{}, {"without its limit"}, {{"init", "uniform"}}},
                         {{}, {"\"random\"", "truncated_normal"}, {{"init", "random"}}}}, .no_reference = bound}}},
          {"constant",
           {{.name = "matrix", .attributes = {{"value", t}}, .outputs = {{f32, {2, 2}}}, .refused = {{{}, {"attribute 'value' is a tensor"}, {{"value", 1.0}}}}, .keep_dtypes = true},
            {.name = "scalar", .attributes = {{"value", HostTensor::scalar<std::int64_t>(5)}}, .outputs = {{i64, {}}}, .keep_dtypes = true}}}};
}

TEST(ConstantLike, refuses_a_number_that_the_dtype_has_not) {
  Builder b("net");
  Value x = b.input("x", i32, {kBatch});
  EXPECT_TRUE(says([&] { x * 0.5; }, {"the number 0.5 is none of i32", "'x'"}));
  EXPECT_NO_THROW(x * 2);
}

}  // namespace belfry::test
