// Groups that give what a member makes, too: gradients of norms with the sums of their rows, and as halves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
          {{b, 304}, {b}, 9, f16, f16, f32, false},
          {{b, 1024}, {b}, 40, f64, f64},
          {{b, 260}, {b}, 70, f64, f64, f32, false, false}};
}

std::vector<std::string> ops_of(const Graph& g, const std::vector<NodeId>& nodes) {
  std::vector<std::string> out;
  for (NodeId id : nodes) out.push_back(g.node(id).op->name);
  return out;
}

TEST(KeptGroups, have_the_bits_of_their_members_in_generated_kernels) {
  struct Case {
    Graph g;
    FusionGroup group;
    std::string what;
    std::unique_ptr<DrawnGroup> drawn = {};
    std::unique_ptr<Prepared> whole = {}, in_turn = {};
    std::vector<DrawnGroup::Alone> alone = {};
    std::int64_t scratch = 0;
  };
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const Kernel members = in_turn(kWithElementwise, {}, std::make_shared<const KernelTable>(table), false);
  std::list<Case> cases;
  for (const SumsForm& f : forms_of_sums()) {
    Case& c = cases.emplace_back(Case{sums_of(f), {}, to_string(TensorType{f.type, f.x}) + " and dy of " + std::string(name_of(f.dy))});
    c.group = find_gpu_groups(c.g).at(0);
    std::vector<std::string> ops = {"layer_norm_gradient"};
    if (f.tree) ops.push_back("add_n");
    ops.push_back("reduce_sum");
    if (f.halves != f32) ops.push_back("cast");
    ASSERT_EQ(ops_of(c.g, c.group.members), ops) << c.what;
    ASSERT_EQ(ops_of(c.g, c.group.kept), (std::vector<std::string>(ops.begin() + f.tree, ops.end() - 1))) << c.what;
    c.drawn = std::make_unique<DrawnGroup>(c.g, c.group, f.rows);
    const KernelTable::Choice choice = table.choose(c.drawn->request);
    ASSERT_EQ(choice.name, "nvrtc_norm") << c.what;
    EXPECT_TRUE(choice.support.in_place);
    c.scratch = std::max(choice.support.scratch_bytes, members.supports(c.drawn->request).scratch_bytes);
    c.whole = table.prepare(choice.name, c.drawn->request, {choice.support.scratch_bytes, true});
    c.in_turn = members.prepare(c.drawn->request);
    c.alone = c.drawn->own_kernels(table);
  }
  host->build();
  for (Case& c : cases) {
    DrawnGroup& d = *c.drawn;
    const std::vector<HostTensor> plain = d.one_by_one(c.alone), reference = d.run(*table.prepare(kReferenceKernel, d.request), 0);
    for (std::size_t k = 0; k < plain.size(); ++k) EXPECT_LE(distance(reference[k], plain[k]), is_half(plain[k].dtype()) ? 0x1p-4 : 1e-3) << c.what << ", output " << k;
    EXPECT_EQ(d.run(*c.whole, c.scratch), plain) << c.what;
    EXPECT_EQ(d.run(*c.in_turn, c.scratch), plain) << c.what << " in turn";
    d.inputs[0].raw()[0] = d.inputs[0].raw()[1] = std::byte{0x7F}, d.inputs[0].raw()[2] = d.inputs[0].raw()[3] = std::byte{0x7F};
    const std::vector<HostTensor> want = d.one_by_one(c.alone);
    EXPECT_EQ(d.run(*c.whole, c.scratch, 1), want) << c.what << ", one element behind a multiple of 16";
    const auto made = static_cast<std::size_t>(d.request.places[d.request.places.size() > 3 || c.g.node(c.group.members[1]).op->name == "add_n" ? 1 : 0][0]);
    for (std::size_t i = 3; i < d.inputs.size(); ++i) {
      if (d.inputs[i].type() != want[made].type()) continue;
      EXPECT_EQ(d.run(*c.whole, c.scratch, 0, static_cast<int>(i), made), want) << c.what << " over input " << i;
    }
  }
}

}  // namespace
}  // namespace belfry::test
