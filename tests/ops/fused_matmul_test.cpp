// Products with their bias and activation as one node: found, computed by their members in turn on the CPU, left out where a gradient needs more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <belfry/belfry.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/expand.h>

#include "kernel_case.h"

namespace belfry::test {
namespace {

/// One group of a dense layer, and its kernels' results.
HostTensor dense_group(Value (*then)(Value), DType t, const std::string& kernel, std::string* kind = nullptr, float poison = 0) {
  Builder builder("dense");
  Value x = builder.input("x", t, {kBatch, 2, 4}), w = builder.input("w", t, {4, 3}), b = builder.input("b", t, {3});
  Value y = then(matmul(x, w) + b);
  const FusionGroup group = find_gpu_groups(builder.graph()).at(0);
  if (kind) *kind = group.kind;
  KernelRequest r;
  const Attributes attributes;
  r.op = group.kind;
  r.attributes = &attributes;
  std::vector<HostTensor> inputs;
  for (Value v : {x, w, b}) r.inputs.push_back({t, extents_of(v.shape(), kRows)}), inputs.push_back(drawn(r.inputs.back(), 4, false, inputs.size()));
  if (poison != 0) inputs[0].data<float>()[0] = poison;
  r.outputs = {{t, extents_of(y.shape(), kRows)}};
  r.output_types = {y.type()};
  r.wanted = {true};
  describe_members(builder.graph(), group.members, r);
  const KernelTable table = cpu_kernels();
  const auto choice = table.choose(r);
  EXPECT_EQ(choice.name, "members_in_turn");
  const std::int64_t bytes = kernel == kReferenceKernel ? 0 : choice.support.scratch_bytes;
  HostTensor out(t, r.outputs[0].shape), scratch(u8, {bytes});
  table.prepare(kernel, r, {bytes, false})->launch({{inputs[0].raw(), inputs[1].raw(), inputs[2].raw()}, {out.raw()}, scratch.raw()});
  return out;
}

TEST(FusedMatmul, is_found_and_agrees_with_its_members) {
  for (auto [then, wanted] : {std::pair<Value (*)(Value), const char*>{[](Value v) { return v; }, kMatmulBias}, {[](Value v) { return gelu(v, true); }, kMatmulBiasGeluTanh}})
    for (DType t : {f32, f64, bf16}) {
      std::string kind;
      const HostTensor got = dense_group(then, t, "members_in_turn", &kind), one_by_one = dense_group(then, t, kReferenceKernel);
      EXPECT_EQ(kind, wanted);
      EXPECT_LE(distance(got, one_by_one), t == bf16 ? 0x1p-7 : 1e-6) << kind << " " << name_of(t);
    }
  EXPECT_TRUE(std::isnan(dense_group([](Value v) { return gelu(v, true); }, f32, "members_in_turn", nullptr, NAN).values<float>()[0]));
}

/// Heads and their features are the columns of one product: their bias is one row, as it lies in memory.
TEST(FusedMatmul, a_bias_of_several_axes_lies_along_columns_of_the_second_operand_alone) {
  auto found = [](const char* equation, Shape a, Shape b, Shape bias) {
    Builder net("product");
    contract(equation, net.input("a", f32, std::move(a)), net.input("b", f32, std::move(b))) + net.input("bias", f32, std::move(bias));
    const std::vector<FusionGroup> groups = find_gpu_groups(net.graph());
    return groups.size() == 1 && groups[0].kind == kMatmulBias && groups[0].members.size() == 2;
  };
  EXPECT_TRUE(found("bti,ihk->bthk", {kBatch, 2, 4}, {4, 3, 2}, {3, 2}));
  EXPECT_TRUE(found("bti,hki->bthk", {kBatch, 2, 4}, {3, 2, 4}, {3, 2}));
  EXPECT_FALSE(found("bti,ikh->bthk", {kBatch, 2, 4}, {4, 2, 3}, {3, 2})) << "columns apart";
  EXPECT_FALSE(found("bti,ihk->bthk", {kBatch, 2, 4}, {4, 3, 2}, {2, 3, 2})) << "a bias per place";
  EXPECT_FALSE(found("bti,ihk->bthk", {kBatch, 2, 4}, {4, 3, 2}, {3, 1})) << "one for all features";
  EXPECT_FALSE(found("bhi,bik->bhk", {kBatch, 3, 4}, {kBatch, 4, 2}, {3, 2})) << "rows of the first";
  EXPECT_FALSE(found("bhi,ihk->bhk", {kBatch, 3, 4}, {4, 3, 2}, {3, 2})) << "a product per head";
}

TEST(FusedMatmul, leaves_its_activation_out_where_the_gradient_reads_what_comes_before) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 4});
  Value y = gelu(matmul(x, b.variable("w", {4, 3})) + b.variable("b", {3}), true);
  b.minimize(reduce_sum(y * y), Sgd{});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  const TowerGraph plan = expand(graph, {.towers = 1, .batch = 4, .groups = find_gpu_groups(*graph)});
  std::vector<std::string> kinds;
  for (const PlanNode& n : plan.nodes)
    if (n.op == kFused && !is_tree(plan, n)) kinds.push_back(n.attributes.text("kind"));
  EXPECT_THAT(kinds, testing::ElementsAre(kMatmulBias));
}

}  // namespace
}  // namespace belfry::test
