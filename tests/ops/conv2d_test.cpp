#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/graph/contexts.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/fusions.h>

#include "kernel_case.h"
#include "numeric_gradient.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostTensor counted(Extents shape) {
  HostTensor out(f32, std::move(shape));
  float next = 1;
  for (float& x : out.data<float>()) x = next++;
  return out;
}

TEST(Conv2d, sums_windows_without_flipping_the_filter) {
  // x: 1..9 as 3 x 3; filter 1 2 / 3 4: the first window is 1·1 + 2·2 + 4·3 + 5·4.
  HostTensor y = reference_of("conv2d", {counted({1, 3, 3, 1}), counted({2, 2, 1, 1})})[0];
  EXPECT_EQ(y.shape(), (Extents{1, 2, 2, 1}));
  EXPECT_THAT(y.data<float>(), ElementsAre(37, 47, 67, 77));
}

TEST(Conv2d, mixes_channels_by_filter_row_and_column) {
  // One pixel (1, 2); filter (1, 1, 2, 3) holds 1 2 3 / 4 5 6.
  HostTensor y = reference_of("conv2d", {counted({1, 1, 1, 2}), counted({1, 1, 2, 3})})[0];
  EXPECT_THAT(y.data<float>(), ElementsAre(9, 12, 15));
}

TEST(Conv2d, pads_same_as_tensorflow_with_the_odd_element_behind) {
  // 2 x 2 windows over 3 x 3 need one element of padding: at the right and at the bottom.
  HostTensor ones = HostTensor::of<float>({2, 2, 1, 1}, {1, 1, 1, 1});
  HostTensor y = reference_of("conv2d", {counted({1, 3, 3, 1}), ones}, {{"padding", "same"}})[0];
  EXPECT_EQ(y.shape(), (Extents{1, 3, 3, 1}));
  EXPECT_THAT(y.data<float>(), ElementsAre(12, 16, 9, 24, 28, 15, 15, 17, 9));
}

TEST(Conv2d, strides_with_padding_cover_a_rounded_up_share) {
  // 3 x 3 windows at stride 2 over 4 x 4: one element of padding, behind.
  HostTensor x = counted({1, 4, 4, 1}), ones(f32, {3, 3, 1, 1});
  for (float& w : ones.data<float>()) w = 1;
  HostTensor y = reference_of("conv2d", {x, ones}, {{"padding", "same"}, {"strides", Integers{2, 2}}})[0];
  EXPECT_THAT(y.data<float>(), ElementsAre(54, 45, 72, 54));
}

TEST(Conv2d, taps_lie_apart_by_the_dilation) {
  // x: 1..9 as 3 x 3; the four corners are under the one window of 2 x 2 taps at dilation 2.
  HostTensor y = reference_of("conv2d", {counted({1, 3, 3, 1}), counted({2, 2, 1, 1})}, {{"dilations", Integers{2, 2}}})[0];
  EXPECT_THAT(y.data<float>(), ElementsAre(1 * 1 + 3 * 2 + 7 * 3 + 9 * 4));
}

TEST(Conv2d, groups_read_their_own_channels) {
  // One pixel (1, 2, 3, 4); the first two outputs read 1 and 2, the others 3 and 4. The filter (1, 1, 2, 4) holds 1 2 3 4 / 5 6 7 8.
  HostTensor y = reference_of("conv2d", {counted({1, 1, 1, 4}), counted({1, 1, 2, 4})}, {{"groups", 2}})[0];
  EXPECT_THAT(y.data<float>(), ElementsAre(11, 14, 37, 44));
}

TEST(Conv2dTranspose, spreads_each_element_over_its_window) {
  HostTensor y = reference_of("conv2d_transpose", {counted({1, 1, 2, 1}), counted({1, 3, 1, 1})}, {{"strides", Integers{1, 2}}})[0];
  EXPECT_EQ(y.shape(), (Extents{1, 1, 5, 1}));
  EXPECT_THAT(y.data<float>(), ElementsAre(1, 2, 3 + 2, 4, 6));
}

TEST(DepthwiseConv2d, has_the_filters_of_a_channel_side_by_side) {
  Builder b("depthwise");
  Value y = depthwise_conv2d(b.input("x", f32, {kBatch, 1, 1, 2}), b.input("w", f32, {1, 1, 2, 2}));
  Result r = run_whole(b.graph(), {{"x", counted({1, 1, 1, 2})}, {"w", counted({1, 1, 2, 2})}}, {}, 1, {{"y", y.id}});
  EXPECT_THAT(r.fetched.at("y").data<float>(), ElementsAre(1, 2, 6, 8));
}

TEST(DepthwiseConv2d, refuses_filters_for_other_channels) {
  Builder b("bad");
  Value x = b.input("x", f32, {kBatch, 4, 4, 3});
  for (Shape w : {Shape{3, 3, 2, 1}, Shape{3, 3, 3}, Shape{3, 3, 3, kBatch}}) {
    try {
      depthwise_conv2d(x, b.input("w" + std::to_string(w.size()) + to_string(w.back()), f32, w));
      ADD_FAILURE() << "was accepted";
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), HasSubstr("[depthwise_conv2d] a filter"));
    }
  }
}

TEST(Conv2d, gradients_are_the_central_differences) {
  struct Case {
    Shape x, filter;
    Integers strides;
    const char* padding;
  };
  for (const Case& c : {Case{{2, 4, 5, 2}, {3, 2, 2, 3}, {1, 1}, "valid"}, Case{{1, 5, 4, 1}, {3, 3, 1, 2}, {2, 2}, "same"}, Case{{1, 5, 5, 2}, {2, 2, 2, 1}, {2, 1}, "valid"}}) {
    double error = gradient_error([&](Builder& b) {
      Value x = b.variable("x", c.x, {.dtype = f64, .init = "normal", .init_value = 1}), w = b.variable("w", c.filter, {.dtype = f64, .init = "normal", .init_value = 1});
      return reduce_sum(square(conv2d(x, w, {.strides = c.strides, .padding = c.padding})));
    });
    EXPECT_LT(error, 1e-7) << c.padding;
  }
  EXPECT_LT(gradient_error([](Builder& b) {
    Value x = b.variable("x", {1, 4, 3, 2}, {.dtype = f64, .init = "normal", .init_value = 1}), w = b.variable("w", {2, 2, 2, 3}, {.dtype = f64, .init = "normal", .init_value = 1});
    return reduce_sum(square(depthwise_conv2d(x, w, {.strides = {2, 1}, .padding = "same", .dilations = {1, 2}})));
  }), 1e-7);
}

TEST(Conv2d, gradients_of_its_gradients_are_the_central_differences) {
  Attributes a = {{"strides", Integers{2, 1}}, {"padding", "same"}};
  auto variables = [](Builder& b) {
    auto make = [&](const char* name, Shape shape) { return b.variable(name, std::move(shape), {.dtype = f64, .init = "normal", .init_value = 1}); };
    return std::tuple(make("x", {1, 4, 3, 2}), make("w", {2, 2, 2, 1}), make("dy", {1, 2, 3, 1}));
  };
  EXPECT_LT(gradient_error([&](Builder& b) {
    auto [x, w, dy] = variables(b);
    return reduce_sum(square(b.graph().add("conv2d_input_gradient", {dy, w, x}, a))) + reduce_sum(x);
  }), 1e-7);
  EXPECT_LT(gradient_error([&](Builder& b) {
    auto [x, w, dy] = variables(b);
    return reduce_sum(square(b.graph().add("conv2d_filter_gradient", {x, dy, w}, a))) + reduce_sum(w);
  }), 1e-7);
}

/// oneDNN would take gigabytes for the padding in between.
TEST(Conv2d, taps_far_beyond_the_picture_are_left_to_the_reference) {
  auto chosen = [](std::int64_t dilation) {
    Asked a({.kernel = "", .op = "conv2d", .inputs = {real({kBatch, 4, 4, 2}), real({2, 2, 2, 2})}, .attributes = {{"padding", "same"}, {"dilations", Integers{dilation, 1}}}});
    std::vector<std::string> reasons;
    std::string name = cpu_kernels().choose(a.request, &reasons).name;
    EXPECT_EQ(testing::PrintToString(reasons).find("its taps lie far beyond the picture") != std::string::npos, dilation > 4096);
    return name;
  };
  EXPECT_NE(chosen(4096), kReferenceKernel);
  EXPECT_EQ(chosen(4097), kReferenceKernel);
  // One tap lies before the picture, the other behind it.
  HostTensor y = reference_of("conv2d", {counted({1, 1, 4, 1}), counted({1, 2, 1, 1})}, {{"padding", "same"}, {"dilations", Integers{1, 4097}}})[0];
  EXPECT_THAT(y.data<float>(), ElementsAre(0, 0, 0, 0));
}

TEST(Conv2d, refuses_shapes_that_do_not_fit) {
  auto message = [](Shape x, Shape w, const Conv2dOptions& options = {}) -> std::string {
    Builder b("bad");
    try {
      conv2d(b.input("x", f32, std::move(x)), b.input("w", f32, std::move(w)), options);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({kBatch, 4, 4, 3}, {2, 2, 1, 8}), HasSubstr("x has 3 channels and the filter takes 1"));
  EXPECT_THAT(message({kBatch, 4, 4, 3}, {5, 2, 3, 8}), HasSubstr("use padding \"same\""));
  EXPECT_THAT(message({kBatch, 4, 4}, {2, 2, 1, 8}), HasSubstr("must have 4 axes"));
  EXPECT_THAT(message({4, kBatch, 4, 3}, {2, 2, 3, 8}), HasSubstr("rows lie on axis 0"));
  EXPECT_THAT(message({kBatch, 4, 4, 3}, {2, 2, 3, 8}, {.strides = {0, 1}}), HasSubstr("strides are two sizes"));
  EXPECT_THAT(message({kBatch, 4, 4, 3}, {2, 2, 3, 8}, {.padding = "full"}), HasSubstr("full"));
}

Split split_of(const char* op, std::vector<TensorType> inputs, std::vector<SplitState> states, std::vector<TensorType> outputs) {
  OpSet ops = standard_ops();
  const OpDef& def = ops.at(op);
  Attributes a = checked(def.attributes, {}, "test");
  return def.split(SplitContext{def, a, std::move(inputs), std::move(states), std::move(outputs), 8});
}

TEST(Conv2d, rows_stay_and_the_filter_gradient_is_a_partial_sum) {
  TensorType x{f32, {kBatch, 4, 4, 2}}, w{f32, {1, 1, 2, 3}}, y{f32, {kBatch, 4, 4, 3}};
  Split forward = split_of("conv2d", {x, w}, {rows(0), kReplicated}, {y});
  EXPECT_EQ(forward.reads, (std::vector{rows(0), kReplicated}));
  EXPECT_EQ(forward.gives, std::vector{rows(0)});
  EXPECT_EQ(split_of("conv2d_input_gradient", {y, w, x}, {rows(0), kReplicated, rows(0)}, {x}).gives, std::vector{rows(0)});
  Split filter = split_of("conv2d_filter_gradient", {x, y, w}, {rows(0), rows(0), kReplicated}, {w});
  EXPECT_EQ(filter.reads, (std::vector{rows(0), rows(0), kReplicated}));
  EXPECT_EQ(filter.gives, std::vector{partial(Reduction::sum)});
  // A filter that is itself a partial sum is read whole.
  EXPECT_EQ(split_of("conv2d", {x, w}, {rows(0), partial(Reduction::sum)}, {y}).reads[1], kReplicated);
}

// ---------------------------------------------------------------- fused with bias and relu

/// relu(conv2d(x, filter) + bias) as one request.
struct Group {
  explicit Group(DType t = f32, bool bias_first = false, std::int64_t channel_groups = 1) : builder("group") {
    Value x = builder.input("x", t, {kBatch, 6, 6, 4}), w = builder.input("w", t, {3, 3, 4 / channel_groups, 8}), b = builder.input("b", t, {8});
    Value c = conv2d(x, w, {.padding = "same", .groups = channel_groups});
    relu(bias_first ? b + c : c + b);
    groups = find_cpu_groups(builder.graph());
    if (groups.size() != 1) return;
    request.op = groups[0].kind;
    request.attributes = &attributes;
    for (Value v : {x, w, b}) request.inputs.push_back({t, extents_of(v.shape(), kRows)});
    for (std::size_t i = 0; i < 3; ++i) inputs.push_back(drawn(request.inputs[i], 4, false, i));
    request.outputs = {{t, extents_of(c.shape(), kRows)}};
    describe_members(builder.graph(), groups[0], request);
  }
  HostTensor launch(const std::string& kernel, std::int64_t scratch_bytes = 0) {
    HostTensor y(request.outputs[0].dtype, request.outputs[0].shape), scratch(u8, {scratch_bytes});
    cpu_kernels().prepare(kernel, request, {scratch_bytes, false})->launch({{inputs[0].raw(), inputs[1].raw(), inputs[2].raw()}, {y.raw()}, scratch.raw()});
    return y;
  }
  Builder builder;
  Attributes attributes;
  std::vector<FusionGroup> groups;
  KernelRequest request;
  std::vector<HostTensor> inputs;
};

TEST(FusedConv2d, is_found_with_the_bias_on_either_side) {
  EXPECT_EQ(Group().groups.size(), 1u);
  EXPECT_EQ(Group(f32, true).groups.size(), 1u);
  Builder b("none");
  Value x = b.input("x", f32, {kBatch, 6, 6, 3}), w = b.input("w", f32, {3, 3, 3, 6});
  relu(conv2d(x, w, {.padding = "same"}) + b.input("row", f32, {6, 6}));  // per pixel and channel, not per channel
  relu(conv2d(x, w, {.padding = "same"}));
  EXPECT_TRUE(find_cpu_groups(b.graph()).empty());
}

TEST(FusedConv2d, agrees_with_its_members_one_by_one) {
  for (auto [threads, channel_groups] : {std::pair{1, 1}, {2, 1}, {2, 4}}) {
    Group g(f32, false, channel_groups);
    g.request.threads = threads;
    auto choice = cpu_kernels().choose(g.request);
    ASSERT_EQ(choice.name, "onednn_conv2d_bias_relu");
    HostTensor got = g.launch(choice.name, choice.support.scratch_bytes), wanted = g.launch(kReferenceKernel);
    EXPECT_LE(distance(got, wanted), 1e-5);
    EXPECT_EQ(std::ranges::count(got.data<float>(), 0.0f), std::ranges::count(wanted.data<float>(), 0.0f)) << "relu cuts elsewhere";
  }
}

TEST(FusedConv2d, the_reference_of_a_group_is_that_of_its_members_in_turn) {
  for (bool bias_first : {false, true}) {
    Group g(f64, bias_first);
    EXPECT_EQ(cpu_kernels().choose(g.request).name, "reference");
    HostTensor got = g.launch(kReferenceKernel);
    Asked conv({"", "conv2d", {{f64, {kBatch, 6, 6, 4}}, {f64, {3, 3, 4, 8}}}, {{"padding", "same"}}});
    conv.inputs = {g.inputs[0], g.inputs[1]};
    HostTensor y = launched(*cpu_kernels().prepare(kReferenceKernel, conv.request), conv, 0)[0];
    for (std::size_t i = 0; i < y.data<double>().size(); ++i) y.data<double>()[i] = std::max(y.data<double>()[i] + g.inputs[2].data<double>()[i % 8], 0.0);
    EXPECT_TRUE(got == y);
  }
}

TEST(FusedConv2d, a_nan_is_not_hidden_by_relu) {
  Group g;
  g.inputs[0].data<float>()[0] = std::nanf("");
  auto choice = cpu_kernels().choose(g.request);
  EXPECT_TRUE(std::isnan(g.launch(kReferenceKernel).values<float>()[0]));
  EXPECT_TRUE(std::isnan(g.launch(choice.name, choice.support.scratch_bytes).values<float>()[0]));
}

}  // namespace
}  // namespace belfry::test
