// Trees of nodes that compute each element by itself: found, and of the bits of their members, on the CPU and in generated kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <belfry/belfry.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>
#ifdef BELFRY_CXX
#include <belfry/ops/cuda_kernels.h>

#include "host_gpu.h"
#endif

#include "drawn_group.h"
#include "op_case.h"

namespace belfry::test {
namespace {

constexpr std::int64_t kRows = 5;

std::vector<std::string> names_of(const Graph& g, const FusionGroup& group) {
  std::vector<std::string> out;
  for (NodeId id : group.members) out.push_back(g.node(id).name);
  return out;
}

std::vector<FusionGroup> trees_of(const Graph& g) {
  std::vector<FusionGroup> out = find_gpu_groups(g);
  std::erase_if(out, [](const FusionGroup& group) { return group.kind != kElementwise; });
  return out;
}

TEST(Trees, are_of_nodes_that_one_tree_alone_reads) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 4}), y = b.input("y", f32, {kBatch, 4}), scale = b.input("scale", f32, {4});
  Value read_twice = tanh(x);                       // by two trees
  Value inner = square(read_twice * scale);         // one tree with what follows
  Value smaller = sqrt(abs(scale));                 // of another shape: its own tree
  b.output(identity(sigmoid(inner + y * smaller), "first"));
  b.output(identity(exp(read_twice), "second"));
  const Graph& g = b.graph();
  const std::vector<FusionGroup> trees = trees_of(g);
  std::vector<std::vector<std::string>> all;
  for (const FusionGroup& t : trees) all.push_back(names_of(g, t));
  EXPECT_THAT(all, testing::UnorderedElementsAre(testing::ElementsAre("mul", "square", "mul_1", "add", "sigmoid"), testing::ElementsAre("abs", "sqrt")));
}

TEST(Trees, stop_at_what_others_ask_for) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 4});
  Value shown = tanh(x), on = exp(shown);
  b.output(shown);
  b.output(on);
  EXPECT_TRUE(trees_of(b.graph()).empty());
  Builder far("far");
  Value h = far.input("x", f32, {kBatch, 4});
  { [[maybe_unused]] auto on_one = far.device("cpu:1"); h = tanh(h); }
  far.output(exp(h));
  EXPECT_TRUE(trees_of(far.graph()).empty());
  Builder whole("numbers");
  whole.output(whole.input("i", i32, {kBatch}) * whole.input("j", i32, {kBatch}) + whole.input("k", i32, {kBatch}));
  EXPECT_TRUE(trees_of(whole.graph()).empty());
}

TEST(Trees, are_no_groups_of_other_kinds_and_hold_no_conversion_that_gpus_lack) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 4});
  b.output(cast(greater(x, square(x)), f16));
  const std::vector<FusionGroup> trees = trees_of(b.graph());
  ASSERT_EQ(trees.size(), 1u);
  EXPECT_THAT(names_of(b.graph(), trees[0]), testing::ElementsAre("square", "greater"));
  EXPECT_TRUE(is_tree(b.graph(), trees[0]));
  EXPECT_FALSE(is_tree(b.graph(), {"square_and_greater", trees[0].members}));  // whose kernel may round otherwise
}

/// Gradients have no request of their own: they go where their node is.
TEST(Trees, of_gradients_stay_on_one_request) {
  Builder b("net");
  Value h = b.input("x", f32, {kBatch, 4}) * b.variable("w", {4});
  for (const char* device : {"cpu:0", "cpu:1"}) {
    [[maybe_unused]] auto on = b.device(device);
    h = tanh(relu(h));
  }
  b.minimize(reduce_sum(h), Sgd{});
  const Graph g = run_passes(training_passes(), std::move(b).build());
  auto request = [&](NodeId id) {
    while (!g.node(id).device && g.node(id).of >= 0) id = g.node(id).of;
    return g.node(id).device;
  };
  int backward = 0;
  for (const FusionGroup& tree : trees_of(g)) {
    backward += g.node(tree.members[0]).role == Role::backward;
    for (NodeId id : tree.members) EXPECT_EQ(request(id), request(tree.members.back())) << g.node(id).name;
  }
  EXPECT_GE(backward, 2);
}

TEST(Trees, are_cut_where_they_would_take_too_many_operands) {
  Builder b("net");
  Value sum = b.input("x0", f32, {kBatch});
  for (int i = 1; i < 20; ++i) sum = sum * b.input("x" + std::to_string(i), f32, {kBatch});
  b.output(sum);
  const std::vector<FusionGroup> trees = trees_of(b.graph());
  std::size_t members = 0;
  for (const FusionGroup& t : trees) {
    EXPECT_LE(t.members.size(), 5u);
    members += t.members.size();
  }
  EXPECT_EQ(members, 19u);
}

TEST(Trees, hold_sums_of_any_number_of_inputs_that_have_rows) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 4}), w = b.variable("w", {4});
  Value sum = relu(add_n({tanh(x), x, exp(x)}, {}, "rows"));
  b.output(sum);
  b.output(exp(add_n({abs(w), w, square(w)}, {}, "without_rows")));  // of which some may be parts of a sum over towers
  std::vector<std::string> all;
  for (const FusionGroup& t : trees_of(b.graph()))
    for (const std::string& name : names_of(b.graph(), t)) all.push_back(name);
  EXPECT_THAT(all, testing::ElementsAre("tanh", "exp", "rows", "relu"));
}

/// Forms that meet in nets: operands that are stretched, comparisons, conversions, a value that is read twice.
Graph forms(DType precision) {
  const DType t = precision == f64 ? f64 : f32;
  Builder b("forms");
  Value x = b.input("x", t, {kBatch, 3, 8}), y = b.input("y", t, {kBatch, 3, 8}), row = b.input("row", t, {8}), column = b.input("column", t, {3, 1});
  Value h = x * row + y, squared = h * h;
  b.output(relu(squared - column));
  b.output(where(greater(x, y), tanh(x * column), y - row));
  b.output(clip(x, -1, 1) + (y + x) * 0.5f);
  b.output(relu(add_n({x * row, y, x, y}) - column));
  b.output(cast(cast(x - y, f64) * cast(row, f64), t));
  Graph out = std::move(b).build();
  out.precision = t == f64 ? f32 : precision;
  return run_passes(training_passes(), out);
}

/// Each kernel of the table for the kind, apart and over every input that a plan may write it over.
void expect_bits(const Graph& g, const KernelTable& table, const std::vector<std::string>& kernels, const std::function<void()>& build = {}) {
  const std::vector<FusionGroup> trees = trees_of(g);
  EXPECT_EQ(trees.size(), 5u);
  for (const FusionGroup& tree : trees) {
    const DrawnGroup d(g, tree, kRows);
    const HostTensor want = d.one_by_one(table, build)[0];
    std::vector<std::string> there;
    for (const Kernel& k : table.all()) {
      if (k.op != kElementwise) continue;
      const Support s = k.supports(d.request);
      ASSERT_TRUE(s.ok) << k.name << ": " << s.reason;
      EXPECT_TRUE(s.in_place) << k.name;
      there.push_back(k.name);
      auto kernel = k.prepare(d.request);
      if (build) build();
      for (int over = -1; over < static_cast<int>(d.inputs.size()); ++over)
        if (over < 0 || d.inputs[static_cast<std::size_t>(over)].type() == want.type()) {
          EXPECT_EQ(d.run(*kernel, s.scratch_bytes, 0, over)[0], want) << k.name << " of " << testing::PrintToString(names_of(g, tree)) << " over input " << over;
        }
    }
    EXPECT_EQ(there, kernels);
    const HostTensor reference = d.run(*table.prepare(kReferenceKernel, d.request), 0)[0];
    EXPECT_LE(distance(reference, want), is_half(want.dtype()) ? 0x1p-6 : 1e-6);
  }
}

TEST(Trees, have_the_bits_of_their_members) {
  for (DType t : {f32, f64, f16, bf16}) expect_bits(forms(t), cpu_kernels(), {"members_in_turn"});
}

#ifdef BELFRY_CXX
/// What a member only selects is not rounded again, but where f32 comes of it: any NaN among halves becomes the one of its sign.
TEST(Trees, round_halves_as_their_members_do) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  for (DType t : {f16, bf16})
    for (auto* made : {+[](Value x) { return relu6(relu(neg(x))); }, +[](Value x) { return cast(relu(neg(x)), f32); }, +[](Value x) { return relu(maximum(x * x, neg(x)) - x * (x + x)); }}) {
      Builder b("net");
      b.output(made(b.input("x", t, {kBatch, 80})));
      const Graph g = std::move(b).build();
      DrawnGroup d(g, trees_of(g).at(0), kRows);
      const std::array<std::uint16_t, 4> bits = {0x7FA1, 0xFFA1, 0x7FFF, 0xFC01};
      std::memcpy(d.inputs[0].raw(), bits.data(), sizeof bits);
      for (std::size_t i = 1; i < d.inputs.size(); ++i) d.inputs[i] = d.inputs[0];
      auto kernel = table.prepare("nvrtc_elementwise", d.request);
      const HostTensor want = d.one_by_one(table, [&] { host->build(); })[0], got = d.run(*kernel, 0)[0];
      EXPECT_TRUE(got == want && std::memcmp(got.raw(), want.raw(), got.bytes().size()) == 0) << name_of(t) << " to " << name_of(want.dtype()) << ", " << testing::PrintToString(names_of(g, d.group));
    }
}

TEST(Trees, have_the_bits_of_their_members_in_generated_kernels) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  int exact = 0;
  for (DType t : {f32, f64, f16, bf16}) {
    const Graph g = forms(t);
    expect_bits(g, table, {"nvrtc_elementwise"}, [&] { host->build(); });
    for (const FusionGroup& tree : trees_of(g))
      if (std::all_of(tree.members.begin(), tree.members.end(), [&](NodeId id) { return g.node(id).op->exact; })) {
        const DrawnGroup d(g, tree, kRows);
        EXPECT_EQ(d.one_by_one(table), d.one_by_one(cpu_kernels())) << testing::PrintToString(names_of(g, tree));
        ++exact;
      }
  }
  EXPECT_GE(exact, 12);
}
#endif

}  // namespace
}  // namespace belfry::test
