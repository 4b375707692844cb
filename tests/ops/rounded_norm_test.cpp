// Norms of f32 that round y themselves, and gradients that read a half of dy or x: the bits of the cast beside them, by every kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <belfry/frontends/builder/builder.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/build.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/half_kernels_internal.h>
#include <belfry/ops/passes/passes.h>

#include "awaited.h"
#include "host_gpu.h"
#include "says.h"

namespace belfry::test {
namespace {

struct Form {
  const char* op;
  Shape x, moments, parameters;
  Attributes attributes = {};
};

/// Rows in packs and one by one, of a warp, of a block, too long to be kept, of several axes, with nothing subtracted; groups.
std::vector<Form> forms() {
  const Dim b = kBatch;
  return {{"layer_norm", {b, 7, 300}, {b, 7}, {300}},
          {"layer_norm", {b, 301}, {b}, {301}},
          {"layer_norm", {b, 1504}, {b}, {1504}, {{"rms", true}}},
          {"layer_norm", {b, 9000}, {b}, {9000}},
          {"layer_norm", {b, 30, 50}, {b}, {30, 50}, {{"axis", 1}}},
          {"group_norm", {b, 3, 5, 8}, {b, 2}, {8}, {{"groups", 2}}}};
}

OpCase forward(const Form& f) { return {.name = "y", .attributes = f.attributes, .inputs = {real(f.x), real(f.parameters), real(f.parameters)}, .outputs = {{f32, f.x}, {f32, f.moments}, {f32, f.moments}}}; }
OpCase backward(const Form& f) {
  return {.name = "dy", .attributes = f.attributes, .inputs = {real(f.x), real(f.moments), positive(f.moments), real(f.x), real(f.parameters)}, .outputs = {{f32, f.x}, {f32, f.parameters}, {f32, f.parameters}}};
}
OpCase with_half(OpCase c, DType half) {
  if (c.name == "y") c.attributes.set("rounded_to", std::string(name_of(half))), c.outputs[0].dtype = half;
  else c.attributes.set("wide", true), c.inputs[c.name == "x" ? 0 : 3].type.dtype = half;
  return c;
}
OpCase named(OpCase c, const char* name) {
  c.name = name;
  return c;
}

void expect_equal_bits(const KernelTable& table, HostGpu* gpu) {
  const OpSet ops = standard_ops();
  std::vector<Awaited> mixed, plain;
  for (const Form& f : forms())
    for (DType half : {bf16, f16})
      for (const auto& [c, op] : {std::pair(forward(f), std::string(f.op)), {backward(f), std::string(f.op) + "_gradient"}, {named(backward(f), "x"), std::string(f.op) + "_gradient"}}) {
        std::vector<Awaited> of_halves, of_f32;
        await(table, ops.at(op), with_half(c, half), 3, true, of_halves);
        await(table, ops.at(op), c, 3, true, of_f32);
        ASSERT_FALSE(of_halves.empty()) << op;
        for (Awaited& w : of_halves) {
          const std::string base = w.by.ends_with(kInF32) ? w.by.substr(0, w.by.size() - std::string(kInF32).size()) : w.by;
          const auto same = std::find_if(of_f32.begin(), of_f32.end(), [&](const Awaited& other) { return other.by == base; });
          ASSERT_NE(same, of_f32.end()) << w.what;
          plain.push_back(*same), mixed.push_back(std::move(w));
          for (std::size_t i = 0; i < mixed.back().inputs.size(); ++i) plain.back().inputs[i] = converted(mixed.back().inputs[i], f32);
        }
      }
  if (gpu) gpu->build();
  for (std::size_t k = 0; k < mixed.size(); ++k) {
    std::vector<HostTensor> wanted = run(plain[k]);
    wanted[0] = converted(wanted[0], mixed[k].wanted[0].dtype());
    EXPECT_EQ(run(mixed[k]), wanted) << mixed[k].what;
    EXPECT_EQ(run(mixed[k], {.past = 8}), wanted) << mixed[k].what << ", at other addresses";
  }
}

TEST(RoundedNorm, has_the_bits_of_the_norm_and_the_cast_on_cpus) { expect_equal_bits(cpu_kernels(), nullptr); }

TEST(RoundedNorm, has_the_bits_of_the_norm_and_the_cast_on_gpus) {
  auto host = std::make_shared<HostGpu>();
  expect_equal_bits(generated_kernels(host), host.get());
}

TEST(RoundedNorm, has_the_bits_of_the_norm_and_the_cast_by_its_reference) {
  const OpSet ops = standard_ops();
  for (const Form& f : forms())
    for (DType half : {bf16, f16}) {
      const std::vector<HostTensor> inputs = draw_all(forward(f), 3, false, 1);
      std::vector<HostTensor> wanted = run_op(ops.at(f.op), forward(f), inputs, 3);
      wanted[0] = converted(wanted[0], half);
      EXPECT_EQ(run_op(ops.at(f.op), with_half(forward(f), half), inputs, 3), wanted) << f.op;
    }
}

/// As of the norm whose y a cast rounds.
TEST(RoundedNorm, has_the_gradient_of_the_norm) {
  Builder b("net");
  const Value x = b.input("x", f32, {kBatch, 4}) * b.variable("scale", {4});
  b.minimize(reduce_sum(square(cast(b.graph().add("layer_norm", {x}, {{"rounded_to", "f16"}}), f32))), Sgd{});
  const Graph g = run_passes(training_passes(), std::move(b).build());
  const Node& n = g.node(g.at("gradient/layer_norm/layer_norm_gradient").node);
  EXPECT_EQ(n.types[0].dtype, f32);
  EXPECT_EQ(g.type(n.inputs[3]).dtype, f32);
}

TEST(RoundedNorm, is_of_f32_alone) {
  auto node = [](const char* op, const std::vector<TensorType>& inputs, const Attributes& a) {
    Builder b("one");
    std::vector<Value> values;
    for (const TensorType& t : inputs) values.push_back(b.input("x" + std::to_string(values.size()), t.dtype, t.shape));
    b.graph().add(op, values, a);
  };
  EXPECT_TRUE(says([&] { node("layer_norm", {{f64, {2, 4}}}, {{"rounded_to", "bf16"}}); }, {"rounds y to bf16 where x is f32", "f64(2, 4)"}));
  EXPECT_TRUE(says([&] { node("layer_norm", {{f32, {2, 4}}}, {{"rounded_to", "f64"}}); }, {"rounded_to", "f64"}));
  const std::vector<TensorType> mixed = {{f32, {2, 4}}, {f32, {2}}, {f32, {2}}, {bf16, {2, 4}}};
  EXPECT_TRUE(says([&] { node("layer_norm_gradient", mixed, {}); }, {"inputs have the dtypes f32 and bf16"}));
  EXPECT_NO_THROW(node("layer_norm_gradient", mixed, {{"wide", true}}));
  EXPECT_TRUE(says([&] { node("layer_norm_gradient", {{f64, {2, 4}}, {f64, {2}}, {f64, {2}}, {bf16, {2, 4}}}, {{"wide", true}}); }, {"inputs have the dtypes f64 and bf16"}));
}

}  // namespace
}  // namespace belfry::test
