#include <gtest/gtest.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/gradients.h>
#include <belfry/ops/passes/passes.h>

#include "interpreter.h"
#include "tables.h"

namespace belfry::test {

OpTables identity_cases() {
  return {{"identity",
           {{.name = "rows", .inputs = {real({kBatch, 3})}, .outputs = {{f32, {kBatch, 3}}}},
            {.name = "without rows", .inputs = {real({3})}, .outputs = {{f32, {3}}}},
            {.name = "two row axes", .inputs = {real({kBatch, kBatch})}, .outputs = {{f32, {kBatch, kBatch}}}},
            {.name = "bools", .inputs = {bits({kBatch})}, .outputs = {{boolean, {kBatch}}}}}},
          {"stop_gradient",
           {{.name = "rows", .inputs = {real({kBatch, 3})}, .outputs = {{f32, {kBatch, 3}}}, .no_gradient_check = "its gradient is zero by definition"},
            {.name = "integers", .inputs = {whole_numbers({3})}, .outputs = {{i32, {3}}}}}}};
}

TEST(StopGradient, cuts_the_path_and_leaves_nothing_behind) {
  Builder b("stop");
  Value x = b.input("x", f64, {2}), y = reduce_sum(x * stop_gradient(square(x)));
  Value dx = gradients(b.graph(), {y.id}, {x.id})[0];
  b.output(dx);
  EXPECT_EQ(run_whole(b.graph(), {{"x", HostTensor::of<double>({2}, {2, 3})}}, {}, 1, {{"dx", dx.id}}).fetched.at("dx"), HostTensor::of<double>({2}, {4, 9}));
  EXPECT_FALSE(gradients(b.graph(), {reduce_sum(stop_gradient(x)).id}, {x.id})[0]);
  Graph simplified = run_passes(inference_passes(), std::move(b).build());
  for (const Node& n : simplified.nodes()) EXPECT_NE(n.op->name, "stop_gradient");
}

}  // namespace belfry::test
