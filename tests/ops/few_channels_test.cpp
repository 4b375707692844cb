// Convolutions of pictures with few channels, run on the host.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <belfry/belfry.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/windows.h>

#include "awaited.h"
#include "drawn_group.h"
#include "gpu_cases.h"
#include "host_gpu.h"
#include "net_kernels.h"

namespace belfry::test {
namespace {

/// Of both directions, the cases that are theirs.
struct FewChannels : testing::Test {
  FewChannels() {
    for (const char* op : {"conv2d", "conv2d_filter_gradient"})
      for (const OpCase& c : gpu_cases(op))
        if (c.name.starts_with("few channels")) await(table, ops.at(op), c, 3, true, all), ++cases;
    std::erase_if(all, [](const Awaited& w) { return w.by != "nvrtc_few_channels" && w.by != "nvrtc_few_channels_tf32"; });
  }
  std::shared_ptr<HostGpu> host = std::make_shared<HostGpu>();
  KernelTable table = generated_kernels(host);
  OpSet ops = standard_ops();
  std::vector<Awaited> all;
  std::size_t cases = 0;
};

/// Nothing is rounded to TF32 on the host: which lane has which element is held to the reference like any sum of f32.
TEST_F(FewChannels, multiply_what_they_should_at_any_address) {
  EXPECT_EQ(all.size(), cases);
  host->build();
  for (Awaited& w : all) {
    if (w.wanted[0].dtype() == f32) w.tolerance = 1e-4;
    expect_as_wanted(w);
    for (std::size_t past : {4u, 8u})
      if (w.inputs[0].elements() < 1000) {
        EXPECT_EQ(run(w, {.past = past}), run(w)) << w.what << ", " << past << " bytes past";
      }
  }
}

/// Words are read whole, also where a window holds half of one, or none.
TEST(FewChannelsAlone, give_a_nan_to_no_other_windows) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const OpSet ops = standard_ops();
  int met = 0;
  for (const OpCase& c : gpu_cases("conv2d")) {
    if (!c.name.starts_with("few channels")) continue;
    std::vector<Awaited> all;
    await(table, ops.at("conv2d"), c, 3, true, all);
    Awaited& w = all.at(0);
    if (w.inputs[0].elements() > 3000) continue;
    HostTensor& x = w.inputs[0];
    const DType t = x.dtype();
    HostTensor wide = converted(x, f32);
    for (std::size_t i = 5; i < wide.data<float>().size(); i += 97) wide.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
    x = converted(wide, t);
    const HostTensor y = converted(run_op(ops.at("conv2d"), c, w.inputs, 3)[0], f32), got = converted(run(w)[0], f32);
    int finite = 0;
    for (std::size_t i = 0; i < y.data<float>().size(); ++i) {
      ASSERT_EQ(std::isnan(y.data<float>()[i]), std::isnan(got.data<float>()[i])) << w.what << ", element " << i;
      finite += !std::isnan(got.data<float>()[i]);
    }
    met += finite > 0 && finite < static_cast<int>(y.data<float>().size());
  }
  EXPECT_GT(met, 3);
}

/// conv2d(x, filter) + bias, read by what is no tree.
Graph with_bias(DType t, bool wide, std::int64_t filters, std::int64_t channels = 3, GraphPrecision precision = {f32}) {
  Builder b("net");
  b.graph().precision = precision;
  const Value x = b.input("x", t, {kBatch, 13, 14, channels}), w = b.input("w", t, {3, 3, channels, filters}), bias = b.input("bias", wide ? f32 : t, {filters});
  const Value y = b.graph().add("conv2d", {x, w}, {{"strides", Integers{2, 2}}, {"padding", "same"}, {"wide", wide}});
  b.output(reduce_max(y + bias, {.axes = {1, 2}}));
  return std::move(b).build();
}

TEST(FewChannelsWithBias, round_once) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  for (auto [t, wide] : {std::pair{bf16, false}, {f16, false}, {bf16, true}, {f32, false}}) {
    const Graph g = with_bias(t, wide, 40, 3, t == f32 ? tf32 : GraphPrecision(f32));
    const std::vector<FusionGroup> groups = find_gpu_groups(g);
    ASSERT_EQ(groups.size(), 1u);
    ASSERT_EQ(groups[0].kind, kConv2dBias);
    const DrawnGroup drawn(g, groups[0], 3);
    const KernelTable::Choice choice = table.choose(drawn.request, nullptr, {.tf32 = t == f32});
    ASSERT_EQ(choice.name, t == f32 ? "nvrtc_few_channels_tf32" : "nvrtc_few_channels");
    const auto kernel = table.prepare(choice.name, drawn.request, {choice.support.scratch_bytes, false});
    host->build();
    const Graph wide_graph = with_bias(f32, false, 40, 3, tf32);
    DrawnGroup widened(wide_graph, find_gpu_groups(wide_graph).at(0), 3);
    for (std::size_t i = 0; i < drawn.inputs.size(); ++i) widened.inputs[i] = converted(drawn.inputs[i], f32);
    const HostTensor wanted = widened.run(*KernelTable().prepare(kReferenceKernel, widened.request), 0)[0];
    for (std::size_t past : {0u, 1u}) {
      const HostTensor got = drawn.run(*kernel, choice.support.scratch_bytes, past)[0];
      EXPECT_LE(distance(converted(got, f32), wanted), t == bf16 && !wide ? 0x1p-8 : t == f16 ? 0x1p-11 : 1e-5) << name_of(t);
    }
  }
}

TEST(FewChannelsWithBias, leaves_other_convolutions_to_trees) {
  for (const Graph& g : {with_bias(bf16, false, 12), with_bias(bf16, false, 16, 5), with_bias(f32, false, 16)})
    for (const FusionGroup& group : find_gpu_groups(g)) EXPECT_EQ(group.kind, kElementwise);
}

/// What no tensor core reads is left to cuDNN.
TEST(FewChannelsOfOthers, are_refused_with_a_reason) {
  const KernelTable table = generated_kernels(std::make_shared<CollectedTexts>());
  const OpSet ops = standard_ops();
  auto why = [&](const std::string& op, DType t, Extents window, std::int64_t channels, std::int64_t filters, Attributes a = {}, std::int64_t high = 20) {
    const Attributes attributes = checked(ops.at(op).attributes, a, op);
    const LocalType x{t, {2, high, 20, channels}}, filter{t, {window[0], window[1], channels / attributes.integer("groups"), filters}};
    Sliding s(x.shape, window[0], window[1], attributes.integers("strides"), attributes);
    const LocalType y{t, {2, s.h.count, s.w.count, filters}};
    KernelRequest r{.op = op, .def = &ops.at(op), .attributes = &attributes};
    r.inputs = {x, op == "conv2d" ? filter : y}, r.outputs = {op == "conv2d" ? y : filter}, r.wanted = {true};
    return table.support("nvrtc_few_channels", r).reason;
  };
  for (const char* op : {"conv2d", "conv2d_filter_gradient"}) {
    EXPECT_EQ(why(op, bf16, {3, 3}, 3, 16), "");
    EXPECT_EQ(why(op, f32, {3, 3}, 3, 16), "tensor cores multiply no f32 as it is");
    EXPECT_EQ(why(op, bf16, {3, 3}, 5, 16), "its pixels have more than four channels, of which cuDNN's engines read several at once");
    EXPECT_EQ(why(op, bf16, {3, 3}, 3, 12), "a product of a warp takes filters by eight");
    EXPECT_EQ(why(op, bf16, {11, 11}, 3, 16), "its filters have more taps than registers keep");
    EXPECT_EQ(why(op, bf16, {3, 3}, 4, 16, {{"groups", 2}}), "its filters are in groups, or their taps lie apart");
    EXPECT_EQ(why(op, bf16, {3, 3}, 3, 16, {{"dilations", Integers{1, 2}}}), "its filters are in groups, or their taps lie apart");
  }
  EXPECT_EQ(why("conv2d_filter_gradient", bf16, {3, 3}, 3, 288), "its filters are more than a block's warps have room for");
  EXPECT_EQ(why("conv2d", bf16, {3, 3}, 3, 288), "");
}

}  // namespace
}  // namespace belfry::test
