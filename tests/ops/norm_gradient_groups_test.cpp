// Gradients of layer and group norms and the elementwise nodes behind dx as one generated kernel: of the bits of the members.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
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

struct Rows {
  const char* op;
  Shape x, moments, parameters;
  Attributes attributes = {};
};

/// Rows in packs and one by one, of a warp, of a block, too long to be kept, of several axes, with nothing subtracted; groups.
std::vector<Rows> forms_of_rows() {
  const Dim b = kBatch;
  return {{"layer_norm_gradient", {b, 7, 304}, {b, 7}, {304}},
          {"layer_norm_gradient", {b, 301}, {b}, {301}},
          {"layer_norm_gradient", {b, 1504}, {b}, {1504}, {{"rms", true}}},
          {"layer_norm_gradient", {b, 9000}, {b}, {9000}},
          {"layer_norm_gradient", {b, 30, 50}, {b}, {30, 50}, {{"axis", 1}}},
          {"group_norm_gradient", {b, 3, 5, 8}, {b, 2}, {8}, {{"groups", 2}}}};
}

/// With a sum, or with a tree of several members and inputs; with gamma or without.
Graph gradient_of(const Rows& f, DType t, DType dy, bool sum_alone) {
  const DType wide = is_half(t) ? f32 : t;
  Attributes attributes = f.attributes;
  attributes.set("wide", t != dy);
  Builder b("group");
  std::vector<Value> inputs = {b.input("x", t, f.x), b.input("mean", wide, f.moments), b.input("inverse", wide, f.moments), b.input("dy", dy, f.x)};
  if (sum_alone) inputs.push_back(b.input("gamma", wide, f.parameters));
  const Value dx = b.graph().add(f.op, inputs, attributes), other = b.input("other", t, f.x);
  b.output(sum_alone ? add_n({other, dx}) : relu(dx * other - b.input("third", t, f.x)) + dx);
  return std::move(b).build();
}

/// The members' own kernels in turn are what the generated one is held to, also where infinities and a NaN are among the values.
TEST(NormGradientGroups, have_the_bits_of_their_members_in_generated_kernels) {
  struct Case {
    Graph g;
    FusionGroup group;
    std::string what;
    std::unique_ptr<DrawnGroup> drawn = {};
    std::unique_ptr<Prepared> whole = {}, in_turn = {};
    std::int64_t scratch = 0;
  };
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const Kernel members = in_turn(kWithElementwise, {}, std::make_shared<const KernelTable>(table), false);
  std::list<Case> cases;
  for (auto [t, dy] : {std::pair{f32, f32}, {f64, f64}, {f16, f16}, {bf16, bf16}, {f32, bf16}})
    for (const Rows& f : forms_of_rows())
      for (bool sum_alone : {true, false}) {
        if (!sum_alone && t != f32 && t != f16) continue;
        Case& c = cases.emplace_back(Case{gradient_of(f, t, dy, sum_alone), {}, std::string(f.op) + " of " + to_string(TensorType{t, f.x}) + " and dy of " + std::string(name_of(dy))});
        c.group = find_gpu_groups(c.g).at(0);
        ASSERT_EQ(c.group.kind, kWithElementwise) << c.what;
        c.drawn = std::make_unique<DrawnGroup>(c.g, c.group, 3);
        const KernelTable::Choice choice = table.choose(c.drawn->request);
        ASSERT_EQ(choice.name, "nvrtc_norm") << c.what;
        EXPECT_TRUE(choice.support.in_place);
        c.scratch = std::max(choice.support.scratch_bytes, members.supports(c.drawn->request).scratch_bytes);
        c.whole = table.prepare(choice.name, c.drawn->request, {c.scratch, true});
        c.in_turn = members.prepare(c.drawn->request);
      }
  host->build();
  int over_inputs = 0;
  for (Case& c : cases) {
    DrawnGroup& d = *c.drawn;
    const std::size_t other = c.g.node(c.group.members[0]).inputs.size();
    const std::vector<HostTensor> plain = d.run(*c.in_turn, c.scratch), reference = d.run(*table.prepare(kReferenceKernel, d.request), 0);
    for (std::size_t k = 0; k < plain.size(); ++k) EXPECT_LE(distance(reference[k], plain[k]), is_half(plain[k].dtype()) ? 0x1p-4 : 1e-3) << c.what << ", output " << k;
    EXPECT_EQ(d.run(*c.whole, c.scratch), plain) << c.what;
    auto put = [](HostTensor& t, std::int64_t at, float v) {
      const HostTensor one = converted(HostTensor::of<float>({1}, {v}), t.dtype());
      std::copy(one.bytes().begin(), one.bytes().end(), t.raw() + static_cast<std::size_t>(at) * size_of(t.dtype()));
    };
    put(d.inputs[other], 0, NAN), put(d.inputs[other], 1, INFINITY), put(d.inputs[3], d.inputs[3].elements() - 1, INFINITY);
    const std::vector<HostTensor> want = d.run(*c.in_turn, c.scratch);
    EXPECT_EQ(d.run(*c.whole, c.scratch, 1), want) << c.what << ", one element behind a multiple of 16";
    for (std::size_t i = 3; i < d.inputs.size(); ++i) {  // dy, and what the tree reads, may be written over
      if ((i > 3 && i < other) || d.inputs[i].type() != want[0].type()) continue;
      EXPECT_EQ(d.run(*c.whole, c.scratch, 0, static_cast<int>(i)), want) << c.what << " over input " << i;
      ++over_inputs;
    }
  }
  EXPECT_EQ(over_inputs, 6 * (4 * 2 + 1 + 2 * 3 + 2));
}

/// A bias's gradient keeps the last axis alone: rows of several axes are wider than that.
TEST(NormGradientGroups, over_several_axes_add_no_rows) {
  const KernelTable table = generated_kernels(std::make_shared<HostGpu>());
  for (int axis : {2, 1, -1, -2}) {
    const bool of_last = axis == 2 || axis == -1;
    Builder b("sum");
    const Shape x = {kBatch, 2, 256}, moments = of_last ? Shape{kBatch, 2} : Shape{kBatch};
    const Value dx = b.graph().add("layer_norm_gradient", {b.input("x", f32, x), b.input("mean", f32, moments), b.input("inverse", f32, moments), b.input("dy", f32, x)}, {{"axis", axis}, {"wide", false}});
    const Value sum = reduce_sum(dx, {.axes = {0, 1}});
    b.output(sum), b.output(dx);
    const Graph g = std::move(b).build();
    const std::vector<FusionGroup> found = find_gpu_groups(g);
    EXPECT_EQ(found.size(), of_last ? 1u : 0u) << axis;
    FusionGroup group{kWithElementwise, {dx.id.node, sum.id.node}};
    group.kept.push_back(dx.id.node);
    if (of_last) { EXPECT_EQ(found.at(0).members, group.members); }
    EXPECT_EQ(table.choose(DrawnGroup(g, group, 3).request).name == "nvrtc_norm", of_last) << axis;
  }
}

/// Tells how many blocks are launched, and computes nothing.
struct ToldGrids : GpuCode {
  struct Told : GpuFunction {
    Told(std::string name, std::map<std::string, std::int64_t>& to) : entry(std::move(name)), blocks(to) {}
    void launch(Grid grid, std::span<const std::uint64_t>, void*) override { blocks[entry] = grid.blocks; }
    std::string entry;
    std::map<std::string, std::int64_t>& blocks;
  };
  std::shared_ptr<GpuFunction> make(const std::string&, const std::string& entry, std::size_t) override { return std::make_shared<Told>(entry, blocks); }
  std::map<std::string, std::int64_t> blocks;
};

/// Rows whose sums take a pass of their own, or are not wanted, need not wait for each other.
TEST(NormGradients, of_rows_that_are_not_summed_on_the_way_go_through_a_block_or_warp_each) {
  auto blocks_of = [](std::int64_t width, bool sums) {
    auto code = std::make_shared<ToldGrids>();
    const KernelTable table = generated_kernels(code);
    Builder b("norm");
    const Value x = b.input("x", bf16, {kBatch, width}), moment = b.input("moment", f32, {kBatch}), gamma = b.input("gamma", f32, {width});
    const Node& n = b.graph().node(emit("layer_norm_gradient", {x, moment, moment, x, gamma}, {}, {}).id.node);
    KernelRequest r;
    r.op = n.op->name;
    r.def = n.op;
    r.attributes = &n.attributes;
    r.inputs = {{bf16, {128, width}}, {f32, {128}}, {f32, {128}}, {bf16, {128, width}}, {f32, {width}}};
    r.outputs = {{bf16, {128, width}}, {f32, {width}}, {f32, {width}}};
    r.output_types = n.types;
    r.wanted = {true, sums, sums};
    const auto choice = table.choose(r);
    EXPECT_EQ(choice.name, "nvrtc_norm");
    auto at = [](std::uintptr_t k) { return reinterpret_cast<std::byte*>(k << 20); };
    table.prepare(choice.name, r, {choice.support.scratch_bytes, false})->launch({.inputs = {at(1), at(2), at(3), at(4), at(5)}, .outputs = {at(6), sums ? at(7) : nullptr, sums ? at(8) : nullptr}, .scratch = at(9)});
    return code->blocks.at("wide");
  };
  EXPECT_EQ(blocks_of(5120, true), 128);
  EXPECT_EQ(blocks_of(1024, false), 128);
  EXPECT_EQ(blocks_of(512, false), 16) << "of eight warps";
  EXPECT_EQ(blocks_of(1024, true), 32) << "of four rows that are added";
  EXPECT_EQ(blocks_of(512, true), 8) << "of sixteen";
}

}  // namespace
}  // namespace belfry::test
