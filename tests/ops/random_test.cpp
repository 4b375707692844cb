#include <gtest/gtest.h>

#include <algorithm>

#include <belfry/frontends/builder/builder.h>
#include <belfry/ops/random/random.h>

#include "tables.h"

namespace belfry::test {

OpTables random_cases() {
  CaseInput seed = below(1000, {}, i64), step = below(9, {}, i64);
  TensorType key{i64, {}};
  OpTables out;
  for (const char* op : {"random_uniform", "random_normal"}) {
    auto of = [&](const char* name, Shape shape) { return OpCase{.name = name, .attributes = {{"shape", shape}, {"stream", 5}}, .inputs = {seed, step}, .outputs = {{f32, shape}}}; };
    OpTable t{op, {of("rows", {kBatch, 5}), of("without rows", {7}), of("time-major", {3, kBatch, 2}), of("two row axes", {kBatch, kBatch}), of("factor of rows", {2 * kBatch, 3}), of("scalar", {})}};
    t.cases[0].refused = {{{{i32, {}}, key}, {"scalars of i64"}}, {{key, {i64, {1}}}, {"scalars of i64"}}, {{key, key}, {"draws f32 or f64"}, {{"dtype", i32}}}};
    out.push_back(std::move(t));
  }
  auto drop = [&](const char* name, Shape shape) { return OpCase{.name = name, .attributes = {{"rate", 0.5}, {"stream", 9}}, .inputs = {real(shape), seed, step}, .outputs = {{f32, shape}}}; };
  OpTable t{"dropout", {drop("rows", {kBatch, 6}), drop("without rows", {6}), drop("time-major", {3, kBatch, 2}), drop("two row axes", {kBatch, kBatch}), drop("factor of rows", {2 * kBatch, 3})}};
  t.cases[0].refused = {{{{i32, {2}}, key, key}, {"must be f32 or f64"}}, {{{f32, {2}}, key, key}, {"rate", "[0, 0.999]"}, {{"rate", 1.0}}}};
  out.push_back(std::move(t));
  return out;
}

TEST(Random, draws_depend_on_seed_step_and_stream) {
  OpDef def = random_defs()[0];
  OpCase c = cases_of("random_uniform")[1];
  auto scalar = [](std::int64_t v) { return HostTensor::scalar<std::int64_t>(v); };
  auto first = run_op(def, c, {scalar(1), scalar(2)}, 1);
  EXPECT_EQ(run_op(def, c, {scalar(1), scalar(2)}, 1), first);
  EXPECT_NE(run_op(def, c, {scalar(2), scalar(2)}, 1), first);
  EXPECT_NE(run_op(def, c, {scalar(1), scalar(3)}, 1), first);
  c.attributes.set("stream", 6);
  EXPECT_NE(run_op(def, c, {scalar(1), scalar(2)}, 1), first);
}

TEST(Random, names_alike_in_other_scopes_draw_other_numbers) {
  Builder b("net");
  auto stream_in = [&](const char* scope) {
    auto guard = b.scope(scope);
    Value y = random_uniform(b.seed(), b.step(), {3}, {.name = "drawn"});
    return b.graph().node(y.id.node).attributes.integer("stream");
  };
  EXPECT_NE(stream_in("a"), stream_in("b"));
}

TEST(Dropout, keeps_its_share_of_the_elements_and_scales_them_up) {
  OpDef def = random_defs()[2];
  OpCase c{.name = "ones", .attributes = {{"rate", 0.25}, {"stream", 9}}, .inputs = {real({10000}), below(9, {}, i64), below(9, {}, i64)}, .outputs = {{f32, {10000}}}};
  HostTensor ones(f32, {10000}), seed = HostTensor::scalar<std::int64_t>(3), step = HostTensor::scalar<std::int64_t>(0);
  for (float& x : ones.data<float>()) x = 1;
  HostTensor y = run_op(def, c, {ones, seed, step}, 1)[0];
  auto dropped = std::ranges::count(y.data<float>(), 0.0f), kept = std::ranges::count(y.data<float>(), 1.0f / 0.75f);
  EXPECT_EQ(dropped + kept, 10000);
  EXPECT_NEAR(static_cast<double>(dropped), 2500, 5 * 43.3);  // deviations of a binomial
  c.attributes.set("rate", 0.0);
  EXPECT_EQ(run_op(def, c, {ones, seed, step}, 1)[0], ones);
}

}  // namespace belfry::test
