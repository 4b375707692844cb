// Products with their bias and activation as one node: found, computed by their members in turn on the CPU, left out where a gradient needs more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <functional>

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
  describe_members(builder.graph(), group, r);
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

TEST(FusedMatmul, a_row_added_to_itself_is_no_bias) {
  Builder net("row");
  Value row = contract("k,kn->n", net.input("v", f32, {4}), net.input("w", f32, {4, 3}));
  row + row;
  for (const FusionGroup& g : find_gpu_groups(net.graph())) EXPECT_NE(g.kind, kMatmulBias);
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

/// Sums of products in a net that `make` builds, each as the ops of its members; a member by its name where that is asked for.
std::vector<std::string> sums(const std::function<void(Builder&)>& make) {
  Builder b("net");
  make(b);
  std::vector<std::string> out;
  for (const FusionGroup& group : find_gpu_groups(b.graph())) {
    if (group.kind != kMatmulAdd) continue;
    std::string ops;
    for (NodeId id : group.members) ops += (ops.empty() ? "" : " ") + b.graph().node(id).op->name;
    out.push_back(ops);
  }
  return out;
}

struct Operands {
  explicit Operands(Builder& b, DType t = f32)
      : x(b.input("x", t, {kBatch, 2, 3})), a(b.input("a", t, {kBatch, 2, 4})), c(b.input("c", t, {kBatch, 2, 5})), w(b.input("w", t, {4, 3})), v(b.input("v", t, {5, 3})), bias(b.input("bias", t, {3})) {}
  Value x, a, c, w, v, bias;
};

TEST(FusedMatmul, of_products_that_are_added_up_is_found) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); b.output(o.x + (matmul(o.a, o.w) + o.bias)); }), ElementsAre("matmul add add"));
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); b.output(matmul(o.a, o.w) + o.x); }), ElementsAre("matmul add"));
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); b.output((matmul(o.a, o.w) + o.bias) + matmul(o.c, o.v)); }), ElementsAre("matmul add matmul add"));
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); b.output(add_n({matmul(o.a, o.w), o.x, matmul(o.c, o.v)})); }), ElementsAre("matmul matmul add_n"));
  // Each sum of a chain begins with the one before.
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); b.output(o.x + matmul(o.a, o.w) + matmul(o.c, o.v)); }), ElementsAre("matmul add", "matmul add"));
  // A product that others read is added as another value.
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); Value y = matmul(o.a, o.w); b.output(reduce_max(y)); b.output(y + matmul(o.c, o.v)); }), ElementsAre("matmul add"));
}

TEST(FusedMatmul, of_products_that_are_added_up_is_left_where_it_saves_no_pass) {
  using testing::IsEmpty;
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); b.output(tanh(o.x + matmul(o.a, o.w))); }), IsEmpty()) << "a tree reads the product in its pass";
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); Value y = matmul(o.a, o.w); b.output(reduce_max(y)); b.output(o.x + y); }), IsEmpty()) << "others read the product";
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); Value y = matmul(o.a, o.w); b.output(y); b.output(o.x + y); }), IsEmpty()) << "somebody asks for the product";
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); Value y = matmul(o.a, o.w); b.output(y + y); }), IsEmpty()) << "it is added to itself";
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); b.output(add_n({o.x, matmul(o.a, o.w), square(o.x)})); }), IsEmpty()) << "two others";
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); b.output(reduce_sum(o.x, {.axes = {2}, .keep = true}) + matmul(o.a, o.w)); }), IsEmpty()) << "of another shape";
  EXPECT_THAT(sums([](Builder& b) { Operands o(b); b.output(contract("bti,btk->ik", o.a, o.x) + o.w); }), IsEmpty()) << "no rows: towers may have parts of it";
  EXPECT_THAT(sums([](Builder& b) {
                Operands o(b);
                std::vector<Value> terms;
                for (int k = 0; k < 9; ++k) terms.push_back(matmul(o.a * static_cast<double>(k + 2), o.w));
                b.output(add_n(terms));
              }),
              IsEmpty())
      << "so many roundings";
  EXPECT_THAT(sums([](Builder& b) {
                Operands o(b);
                Value y = matmul(o.a, o.w);
                auto on = b.device("gpu:1");
                b.output(o.x + y);
              }),
              IsEmpty())
      << "on two devices";
}

TEST(FusedMatmul, of_products_that_are_added_up_agrees_with_its_members) {
  for (DType t : {f32, f64, bf16})
    for (bool in_f32_sum : {false, true}) {
      if (in_f32_sum && t != bf16) continue;
      Builder b("net");
      Operands o(b, t);
      const Value other = in_f32_sum ? b.input("wide", f32, {kBatch, 2, 3}) : o.x, bias = in_f32_sum ? b.input("wide_bias", f32, {3}) : o.bias;
      auto product = [&](Value p, Value q) { return b.graph().add("matmul", {p, q}, {{"wide", in_f32_sum}}); };
      const Value y = add_n({product(o.a, o.w) + bias, other, product(o.c, o.v)});
      b.output(y);
      const FusionGroup group = find_gpu_groups(b.graph()).at(0);
      ASSERT_EQ(group.kind, kMatmulAdd);
      KernelRequest r;
      const Attributes attributes;
      r.op = group.kind, r.attributes = &attributes, r.wanted = {true};
      std::vector<HostTensor> inputs;
      Arguments arguments;
      for (Value v : {o.a, o.w, bias, o.c, o.v, other}) r.inputs.push_back({v.dtype(), extents_of(v.shape(), kRows)}), inputs.push_back(converted(drawn({f32, r.inputs.back().shape}, 4, false, inputs.size()), v.dtype()));
      for (const HostTensor& x : inputs) arguments.inputs.push_back(x.raw());
      r.outputs = {{y.dtype(), extents_of(y.shape(), kRows)}}, r.output_types = {y.type()};
      describe_members(b.graph(), group, r);
      const KernelTable table = cpu_kernels();
      const auto choice = table.choose(r);
      ASSERT_EQ(choice.name, "members_in_turn");
      HostTensor got(y.dtype(), r.outputs[0].shape), wanted = got, scratch(u8, {choice.support.scratch_bytes});
      arguments.outputs = {got.raw()}, arguments.scratch = scratch.raw();
      table.prepare(choice.name, r, {choice.support.scratch_bytes, false})->launch(arguments);
      arguments.outputs = {wanted.raw()};
      table.prepare(kReferenceKernel, r)->launch(arguments);
      EXPECT_LE(distance(got, wanted), y.dtype() == bf16 ? 0x1p-6 : 1e-6) << name_of(t);
      // The kind stands for nothing else: what it does not compute it refuses.
      const LocalType whole = std::exchange(r.inputs.back(), {y.dtype(), {3}});
      EXPECT_EQ(table.choose(r).name, kReferenceKernel) << "a row in the other's place";
      r.inputs.back() = whole;
      std::swap(r.members[0], r.members[1]);
      std::vector<std::string> reasons;
      EXPECT_EQ(table.choose(r, &reasons).name, kReferenceKernel);
      EXPECT_THAT(reasons, testing::Contains(testing::HasSubstr("its members are not products and their sum, of one type")));
    }
}

/// Dense, with what is added to it, and the gradient of two products of one value.
TEST(FusedMatmul, of_products_that_are_added_up_stands_in_plans) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 4});
  Value y = x + (matmul(tanh(x * b.variable("s", {4})), b.variable("w", {4, 4})) + b.variable("b", {4}));
  Value z = matmul(y, b.variable("u", {4, 3})) * matmul(y, b.variable("v", {4, 3}));
  b.minimize(reduce_sum(z), Sgd{});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  const TowerGraph plan = expand(graph, {.towers = 2, .batch = 4, .groups = find_gpu_groups(*graph)});
  std::vector<std::size_t> members;
  for (const PlanNode& n : plan.nodes)
    if (n.op == kFused && n.attributes.text("kind") == kMatmulAdd) members.push_back(n.members.size());
  EXPECT_THAT(members, testing::ElementsAre(3, 3));
}

}  // namespace
}  // namespace belfry::test
