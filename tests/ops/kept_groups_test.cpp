// Groups that give what a member makes, too: gradients of norms with the sums of their rows, and as halves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <belfry/belfry.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/build.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/member_kernels_internal.h>

#include "drawn_group.h"
#include "host_gpu.h"
#include "op_case.h"

namespace belfry::test {
namespace {

struct SumsForm {
  Shape x, moments;
  std::int64_t rows;
  DType type = f32, dy = f32, halves = f32;  ///< f32: none
  bool tree = true, parameters = true, rms = false;
};

/// What a norm's gradient and the sum behind it make is read by others, by a sum of its rows, and as halves.
Graph sums_of(const SumsForm& f) {
  const DType wide = is_half(f.type) ? f32 : f.type;
  Builder b("kept");
  std::vector<Value> inputs = {b.input("x", f.type, f.x), b.input("mean", wide, f.moments), b.input("inverse", wide, f.moments), b.input("dy", f.dy, f.x)};
  if (f.parameters) inputs.push_back(b.input("gamma", wide, {f.x.back()}));
  Value made = b.graph().add("layer_norm_gradient", inputs, {{"wide", f.type != f.dy}, {"rms", f.rms}});
  if (f.tree) made = add_n({made, b.input("other", f.type, f.x)});
  Integers axes;
  for (std::size_t a = 0; a + 1 < f.x.size(); ++a) axes.push_back(static_cast<std::int64_t>(a));
  b.output(reduce_sum(made, {.axes = axes}));
  if (f.halves != f32) b.output(cast(made, f.halves));
  b.output(made * made);
  return std::move(b).build();
}

/// Rows of a warp, of a block, in packs and one by one; blocks of sums that no eight rows fill; one row, and fewer than a block.
std::vector<SumsForm> forms_of_sums() {
  const Dim b = kBatch;
  return {{{b, 7, 512}, {b, 7}, 21, f32, bf16, bf16},
          {{b, 304}, {b}, 150, f32, f32, f16, true, false},
          {{b, 301}, {b}, 120},
          {{b, 256}, {b}, 1, f32, f16, f16},
          {{b, 1, 1504}, {b, 1}, 45, f32, bf16, bf16, true, true, true},
          {{b, 2048}, {b}, 21, f32, f32, f32, false},
          {{b, 3, 768}, {b, 3}, 30, bf16, bf16},
          {{b, 304}, {b}, 9, f16, f16, f32, false}};
}

/// What a batch norm's gradient makes, of a dy that a tree makes or not, is read by a sum of its rows, as halves, and by others or not.
Graph sums_of_batch_norm(const SumsForm& f, bool kept) {
  const DType wide = is_half(f.type) ? f32 : f.type;
  Builder b("batch_norm");
  const Value x = b.input("x", f.type, f.x), slope = b.input("dy", f.type, f.x), row = b.input("row", wide, {f.x.back()});
  const Value norm = batch_norm(x, row, row, row, row), dy = f.tree ? relu_gradient(slope, b.input("y", f.type, f.x)) : slope;
  const Value dx = emit("batch_norm_gradient", {x, f.parameters ? row : Value{}, row, norm.output(1), norm.output(2), dy}, {{"activation", f.tree ? "none" : "relu"}}, {});
  Integers axes;
  for (std::size_t a = 0; a + 1 < f.x.size(); ++a) axes.push_back(static_cast<std::int64_t>(a));
  b.output(reduce_sum(dx, {.axes = axes}));
  if (f.halves != f32) b.output(cast(dx, f.halves));
  if (kept) b.output(matmul(dx, b.input("w", f.type, {f.x.back(), 2})));
  return std::move(b).build();
}

/// Few columns and many, in packs and one by one; blocks of sums that rows of all lanes fill or not; one row, and more than the last launch joins.
std::vector<SumsForm> forms_of_batch_norms() {
  const Dim b = kBatch;
  return {{{b, 3, 5, 64}, {}, 40},
          {{b, 64}, {}, 600, bf16},
          {{b, 160}, {}, 250, f32, f32, f32, false},
          {{b, 77}, {}, 430, bf16, bf16, f32, true, false},
          {{b, 3}, {}, 6000, f32, f32, f32, false},
          {{b, 2}, {}, 1, f64},
          {{b, 1032}, {}, 34, bf16},
          {{b, 7, 272}, {}, 10, f16, f16, f32, false},
          {{b, 24}, {}, 8300, f64, f64, f32, false},
          {{b, 136}, {}, 210, f32, f32, bf16, false},
          {{b, 16}, {}, 8300, f32, f32, f16},
          {{b, 33}, {}, 600, f32, f32, bf16, true, false}};
}

/// What makes dy of a batch norm's gradient, of one value to four, is read by a product, too.
Graph fed_batch_norm(const SumsForm& f, std::int64_t read, bool summed) {
  const DType wide = is_half(f.type) ? f32 : f.type;
  Builder b("batch_norm");
  auto in = [&](const char* name) { return b.input(name, f.type, f.x); };
  const Value x = in("x"), row = b.input("row", wide, {f.x.back()}), norm = batch_norm(x, row, row, row, row), first = in("first");
  const Value dy = read == 1 ? abs(first) : read == 2 ? first + in("second") : read == 3 ? relu_gradient(add_n({first, in("second")}), in("y")) : relu(add_n({first, in("second"), in("third")}) * in("fourth"));
  const Value dx = emit("batch_norm_gradient", {x, f.parameters ? row : Value{}, row, norm.output(1), norm.output(2), dy}, {{"activation", read == 1 ? "none" : read == 3 ? "relu6" : "relu"}}, {}), w = b.input("w", f.type, {f.x.back(), 2});
  Integers axes;
  for (std::size_t a = 0; a + 1 < f.x.size(); ++a) axes.push_back(static_cast<std::int64_t>(a));
  if (summed) b.output(reduce_sum(dx, {.axes = axes}));
  if (summed && f.halves != f32) b.output(cast(dx, f.halves));
  b.output(matmul(dx, w)), b.output(matmul(dy, w));
  return std::move(b).build();
}

std::vector<std::string> ops_of(const Graph& g, const std::vector<NodeId>& nodes) {
  std::vector<std::string> out;
  for (NodeId id : nodes) out.push_back(g.node(id).op->name);
  return out;
}

/// A tree and the sum of its rows; what it makes is read by others or not.
Graph summed_tree(const SumsForm& f, bool kept) {
  Builder b("summed");
  const Value x = b.input("x", f.type, f.x), y = b.input("y", f.type, f.x);
  const Value made = f.tree ? relu(x * y) - x : gelu(x);
  b.output(reduce_sum(made, {.axes = {0}}));
  if (kept) b.output(made);
  return std::move(b).build();
}

struct GroupCase {
  GroupCase(Graph graph, std::string text, std::int64_t rows, const std::vector<std::string>& ops, const std::vector<std::string>& kept, const KernelTable& table, const Kernel& members, const std::string& kernel)
      : g(std::move(graph)), what(std::move(text)), group(find_gpu_groups(g).at(0)) {
    EXPECT_EQ(ops_of(g, group.members), ops) << what;
    EXPECT_EQ(ops_of(g, group.kept), kept) << what;
    drawn = std::make_unique<DrawnGroup>(g, group, rows);
    const KernelTable::Choice choice = table.choose(drawn->request);
    EXPECT_EQ(choice.name, kernel) << what;
    EXPECT_TRUE(choice.support.in_place);
    KernelRequest unshared = drawn->request;
    unshared.share = {};
    EXPECT_EQ(table.choose(unshared).name, kernel) << what << ": who makes a plan knows no share";
    scratch = std::max(choice.support.scratch_bytes, members.supports(drawn->request).scratch_bytes);
    whole = table.prepare(choice.name, drawn->request, {choice.support.scratch_bytes, true});
    in_turn = members.prepare(drawn->request);
    alone = drawn->own_kernels(table);
  }
  Graph g;
  std::string what;
  FusionGroup group;
  std::unique_ptr<DrawnGroup> drawn;
  std::unique_ptr<Prepared> whole, in_turn;
  std::vector<DrawnGroup::Alone> alone;
  std::int64_t scratch = 0;
};

/// Where a dy that others read stands among the group's values; -1: there is none.
std::ptrdiff_t place_of_dy(const GroupCase& c) {
  const KernelRequest& r = c.drawn->request;
  for (std::size_t m = 0; m + 1 < r.members.size(); ++m)
    if (r.members[m + 1]->op->name == "batch_norm_gradient") return r.places[m][0];
  return -1;
}

/// Where what is summed stands among the group's values; -1: inside.
std::ptrdiff_t place_of_rows(const GroupCase& c) {
  for (std::size_t m = 0; m < c.group.members.size(); ++m)
    if (const Node& n = c.g.node(c.group.members[m]); n.op->name == kReduceSum)
      for (std::size_t k = 0; k < c.group.members.size(); ++k)
        if (c.group.members[k] == n.inputs[0].node) return c.drawn->request.places[k][0];
  return -1;
}

TEST(KeptGroups, have_the_bits_of_their_members_in_generated_kernels) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const Kernel members = in_turn(kWithElementwise, {}, std::make_shared<const KernelTable>(table), false);
  std::list<GroupCase> cases;
  for (const SumsForm& f : forms_of_sums()) {
    std::vector<std::string> ops = {"layer_norm_gradient"};
    if (f.tree) ops.push_back("add_n");
    ops.push_back("reduce_sum");
    if (f.halves != f32) ops.push_back("cast");
    const std::vector<std::string> kept(ops.begin() + f.tree, ops.end() - 1);
    cases.emplace_back(sums_of(f), to_string(TensorType{f.type, f.x}) + " and dy of " + std::string(name_of(f.dy)), f.rows, ops, kept, table, members, "nvrtc_norm");
  }
  const Dim b = kBatch;
  for (const SumsForm& f : {SumsForm{{b, 2048}, {}, 70}, {{b, 301}, {}, 33}, {{b, 1040}, {}, 45, bf16, bf16, f32, false}, {{b, 264}, {}, 100, f16}, {{b, 512}, {}, 20, f64, f64, f32, false}})
    for (bool kept : {true, false}) {
      std::vector<std::string> ops = f.tree ? std::vector<std::string>{"mul", "relu", "sub", "reduce_sum"} : std::vector<std::string>{"gelu", "reduce_sum"};
      cases.emplace_back(summed_tree(f, kept), "a tree of " + to_string(TensorType{f.type, f.x}), f.rows, ops, kept ? std::vector<std::string>{*(ops.end() - 2)} : std::vector<std::string>{}, table, members, "nvrtc_elementwise");
    }
  for (const SumsForm& f : forms_of_batch_norms())
    for (bool keeps : {true, false}) {
      std::vector<std::string> ops = {"batch_norm_gradient", "reduce_sum"}, kept;
      if (f.tree) ops.insert(ops.begin(), "relu_gradient");
      if (keeps) kept.push_back("batch_norm_gradient");
      if (f.halves != f32) ops.push_back("cast"), kept.push_back("reduce_sum");
      if (!keeps && f.halves == f32 && f.tree) continue;
      cases.emplace_back(sums_of_batch_norm(f, keeps), "a batch norm of " + to_string(TensorType{f.type, f.x}), f.rows, ops, kept, table, members, "nvrtc_batch_norm");
    }
  const std::vector<SumsForm> fed = forms_of_batch_norms();
  for (std::size_t k = 0; k < 2 * fed.size(); k += k < fed.size() ? 1 : 5) {
    const SumsForm& f = fed[k % fed.size()];
    const std::int64_t read = std::vector<std::int64_t>{3, 2, 4, 3, 1}[k % 5];
    const bool summed = k % 2 == 1 || f.halves != f32;
    std::vector<std::string> ops = read == 1 ? std::vector<std::string>{"abs"} : read == 2 ? std::vector<std::string>{"add"} : read == 3 ? std::vector<std::string>{"add_n", "relu_gradient"} : std::vector<std::string>{"add_n", "mul", "relu"}, kept = {ops.back()};
    ops.push_back("batch_norm_gradient");
    if (summed) ops.push_back("reduce_sum"), kept.push_back("batch_norm_gradient");
    if (summed && f.halves != f32) ops.push_back("cast"), kept.push_back("reduce_sum");
    cases.emplace_back(fed_batch_norm(f, read, summed), "a batch norm of " + to_string(TensorType{f.type, f.x}) + " with a dy of " + std::to_string(read), f.rows, ops, kept, table, members, "nvrtc_batch_norm");
  }
  host->build();
  int over_inputs = 0, dy_over_inputs = 0;
  for (GroupCase& c : cases) {
    DrawnGroup& d = *c.drawn;
    const std::vector<HostTensor> plain = d.one_by_one(c.alone), reference = d.run(*table.prepare(kReferenceKernel, d.request), 0);
    for (std::size_t k = 0; k < plain.size(); ++k) EXPECT_LE(distance(reference[k], plain[k]), is_half(plain[k].dtype()) ? 0x1p-4 : 1e-3) << c.what << ", output " << k;
    EXPECT_EQ(d.run(*c.whole, c.scratch), plain) << c.what;
    EXPECT_EQ(d.run(*c.in_turn, c.scratch), plain) << c.what << " in turn";
    std::fill_n(d.inputs[0].raw(), 8, std::byte{0x7F});  // a NaN of any dtype but f64
    const std::vector<HostTensor> want = d.one_by_one(c.alone);
    EXPECT_EQ(d.run(*c.whole, c.scratch, 1), want) << c.what << ", one element behind a multiple of 16";
    const std::ptrdiff_t made = place_of_rows(c);
    for (std::size_t i = c.g.node(c.group.members[0]).op->name == "layer_norm_gradient" ? 3 : 0; made >= 0 && i < d.inputs.size(); ++i) {
      if (d.inputs[i].type() != want[static_cast<std::size_t>(made)].type()) continue;
      EXPECT_EQ(d.run(*c.whole, c.scratch, 0, static_cast<int>(i), static_cast<std::size_t>(made)), want) << c.what << " over input " << i;
      ++over_inputs;
    }
    const std::ptrdiff_t dy = place_of_dy(c);
    for (std::size_t i = 0; dy >= 0 && i + 5 < d.inputs.size(); ++i, ++dy_over_inputs)  // what its tree reads
      for (Prepared* kernel : {c.whole.get(), c.in_turn.get()}) EXPECT_EQ(d.run(*kernel, c.scratch, 0, static_cast<int>(i), static_cast<std::size_t>(dy)), want) << c.what << ", dy over input " << i;
  }
  EXPECT_GT(over_inputs, 50);
  EXPECT_GT(dy_over_inputs, 30);
}

/// What nobody reads has no place to be written to: parameters' gradients, and what is kept, dy too.
TEST(KeptGroups, leave_out_what_nobody_reads) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const Kernel members = in_turn(kWithElementwise, {}, std::make_shared<const KernelTable>(table), false);
  struct Case {
    Case(Graph graph, std::int64_t rows) : g(std::move(graph)), drawn(g, find_gpu_groups(g).at(0), rows) {}
    Graph g;
    DrawnGroup drawn;
    std::unique_ptr<Prepared> whole = {}, in_turn = {};
    std::vector<DrawnGroup::Alone> alone = {};
    std::int64_t scratch = 0;
  };
  std::list<Case> cases;
  for (int batch : {0, 1, 2})
    for (unsigned k = 0; k < (batch == 2 ? 8 : 16); ++k) {
      const std::int64_t width = batch ? 40 : k < 8 ? 304 : 1504;
      const SumsForm f = k < 8 ? SumsForm{{kBatch, width}, {kBatch}, 70, f32, bf16, bf16} : SumsForm{{kBatch, width}, {kBatch}, 9};
      Case& c = cases.emplace_back(batch == 2 ? fed_batch_norm(f, k < 4 ? 4 : 3, k % 4 < 2) : batch ? sums_of_batch_norm(f, true) : sums_of(f), f.rows);
      KernelRequest& r = c.drawn.request;
      c.alone = c.drawn.own_kernels(table);
      std::size_t norm = 0;
      while (r.members[norm]->types.size() == 1) ++norm;
      for (unsigned of = 0; of < 3; ++of)
        if (const std::ptrdiff_t at = of < 2 ? r.places[norm][of + 1] : r.places[batch == 2 ? norm : 1][0]; at > 0) r.wanted[static_cast<std::size_t>(at)] = !(k >> of & 1);
      if (batch == 2) r.wanted[static_cast<std::size_t>(r.places[norm - 1][0])] = k > 2;
      const KernelTable::Choice choice = table.choose(r);
      ASSERT_EQ(choice.name, batch ? "nvrtc_batch_norm" : "nvrtc_norm");
      c.scratch = std::max(choice.support.scratch_bytes, members.supports(r).scratch_bytes);
      c.whole = table.prepare(choice.name, r, {choice.support.scratch_bytes, false});
      c.in_turn = members.prepare(r);
    }
  host->build();
  for (Case& c : cases) {
    std::vector<HostTensor> want = c.drawn.one_by_one(c.alone);
    for (std::size_t k = 0; k < want.size(); ++k)
      if (!c.drawn.request.wanted[k]) want[k] = HostTensor(want[k].dtype(), want[k].shape());
    EXPECT_TRUE(c.drawn.run(*c.whole, c.scratch) == want);
    EXPECT_TRUE(c.drawn.run(*c.in_turn, c.scratch) == want);
    EXPECT_TRUE(c.drawn.run(*table.prepare(kReferenceKernel, c.drawn.request), 0).size() == want.size());
  }
}

/// What nothing is added of, a dx kept beside what a tree makes of it, and an inner value of a tree, before a norm's gradient too.
TEST(KeptGroups, of_other_forms_have_no_kernel_of_their_own) {
  const KernelTable table = generated_kernels(std::make_shared<HostGpu>());
  Graph g = sums_of({{kBatch, 0, 256}, {kBatch, 0}, 2});
  EXPECT_EQ(table.choose(DrawnGroup(g, find_gpu_groups(g).at(0), 2).request).name, kReferenceKernel);
  g = sums_of({{kBatch, 256}, {kBatch}, 2});
  FusionGroup group = find_gpu_groups(g).at(0);
  EXPECT_EQ(table.choose(DrawnGroup(g, group, 2).request).name, "nvrtc_norm");
  group.kept.push_back(group.members[0]);
  EXPECT_EQ(table.choose(DrawnGroup(g, group, 2).request).name, kReferenceKernel);
  g = sums_of_batch_norm({{kBatch, 0, 8}, {}, 2}, true);
  EXPECT_EQ(table.choose(DrawnGroup(g, find_gpu_groups(g).at(0), 2).request).name, kReferenceKernel);
  g = sums_of_batch_norm({{kBatch, 8}, {}, 2}, true);
  group = find_gpu_groups(g).at(0);
  EXPECT_EQ(table.choose(DrawnGroup(g, group, 2).request).name, "nvrtc_batch_norm");
  group.kept.push_back(group.members[0]);
  EXPECT_EQ(table.choose(DrawnGroup(g, group, 2).request).name, "nvrtc_batch_norm") << "dy is kept, which nobody else reads";
  g = fed_batch_norm({{kBatch, 8}, {}, 2}, 3, false);
  group = find_gpu_groups(g).at(0);
  EXPECT_EQ(table.choose(DrawnGroup(g, group, 2).request).name, "nvrtc_batch_norm");
  group.kept.push_back(group.members[0]);
  EXPECT_EQ(table.choose(DrawnGroup(g, group, 2).request).name, kReferenceKernel) << "what dy is made of is kept";
  Builder b("tree");
  const Value x = b.input("x", f32, {kBatch, 8}), first = relu(x), last = first * x;
  b.output(last);
  g = std::move(b).build();
  EXPECT_EQ(table.choose(DrawnGroup(g, {kElementwise, {first.id.node, last.id.node}}, 2).request).name, "nvrtc_elementwise");
  EXPECT_EQ(table.choose(DrawnGroup(g, {kElementwise, {first.id.node, last.id.node}, {first.id.node}}, 2).request).name, kReferenceKernel);
}

/// Of one column the sum is of lanes; others do not read dx, or not all of its rows, or y.
TEST(KeptGroups, have_no_other_sums_beside_a_batch_norm) {
  const KernelTable table = generated_kernels(std::make_shared<HostGpu>());
  auto chosen = [&](std::int64_t channels, const std::function<Value(Value, Value)>& summed) {
    Builder b("norm");
    const Value x = b.input("x", f32, {kBatch, 3, channels}), row = b.input("row", f32, {channels}), norm = batch_norm(x, row, row, row, row);
    const Value dx = emit("batch_norm_gradient", {x, row, {}, norm.output(1), norm.output(2), x}, {}, {}), sum = summed(norm, dx);
    b.output(sum), b.output(dx), b.output(norm);
    const Graph g = std::move(b).build();
    EXPECT_EQ(find_gpu_groups(g).size(), channels == 8 && g.node(sum.id.node).inputs[0] == dx.id && g.node(sum.id.node).attributes.integers("axes").size() == 2 ? 1u : 0u);
    const NodeId of = g.node(sum.id.node).inputs[0].node;
    return table.choose(DrawnGroup(g, {kWithElementwise, {of, sum.id.node}, {of}}, 2).request).name;
  };
  EXPECT_EQ(chosen(8, [](Value, Value dx) { return reduce_sum(dx, {.axes = {0, 1}}); }), "nvrtc_batch_norm");
  EXPECT_EQ(chosen(8, [](Value, Value dx) { return reduce_sum(dx, {.axes = {0}}); }), kReferenceKernel);
  EXPECT_EQ(chosen(1, [](Value, Value dx) { return reduce_sum(dx, {.axes = {0, 1}}); }), kReferenceKernel);
  EXPECT_EQ(chosen(8, [](Value norm, Value) { return reduce_sum(norm, {.axes = {0, 1}}); }), kReferenceKernel);
}

}  // namespace
}  // namespace belfry::test
