// A convolution with a filter per channel and the elementwise nodes behind it as one node: found, of the bits of the members, and of what it moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <belfry/belfry.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/plan/cost.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/place.h>
#include <belfry/placer/strategies/strategies.h>

#include "drawn_group.h"
#include "host_gpu.h"
#include "nets.h"
#include "op_case.h"
#include "plans.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kPictures = 2;

/// What a form of convolution has behind it, in all forms that its kernel takes: values per channel, one value, values of y's shape, and a result of another dtype.
Graph nets(DType precision, std::int64_t channels, const DepthwiseConv2dOptions& options = {}, std::int64_t window = 3) {
  const DType t = precision == f64 ? f64 : f32;
  Builder b("nets");
  Value x = b.input("x", t, {kBatch, 7, 6, channels});
  auto made = [&](const std::string& name) { return depthwise_conv2d(x, b.variable(name, {window, window, channels, 1}, {.dtype = t}), options); };
  auto row = [&](const char* name) { return b.variable(name, {channels}, {.dtype = t}); };
  b.output(relu6(made("u") * row("scale") + row("shift")));
  Value y = made("v");
  b.output(relu(y * 0.5 + b.input("z", t, y.type().shape)));
  b.output(cast(greater(made("w"), row("bound")), t) - b.input("above", t, y.type().shape));
  Graph out = std::move(b).build();
  out.precision = t == f64 ? f32 : precision;
  return run_passes(training_passes(), out);
}

/// The same with what makes x: of values per channel, one value, or a constant and x twice; with nothing behind it, too, where a pool reads y.
Graph fed_nets(DType precision, std::int64_t channels, const DepthwiseConv2dOptions& options = {}, std::int64_t window = 3) {
  const DType t = precision == f64 ? f64 : f32;
  Builder b("fed_nets");
  Value x = b.input("x", t, {kBatch, 7, 6, channels});
  auto made = [&](const std::string& name, Value of) { return depthwise_conv2d(of, b.variable(name, {window, window, channels, 1}, {.dtype = t}), options); };
  auto row = [&](const char* name) { return b.variable(name, {channels}, {.dtype = t}); };
  b.output(relu6(made("u", relu6(x * row("scale") + row("shift"))) * row("scale_behind") + row("shift_behind")));
  Value y = made("v", minimum(x, row("bound")) - b.variable("value", {}, {.dtype = t}));
  b.output(relu(y * 0.5 + b.input("z", t, y.type().shape)));
  b.output(max_pool2d(made("w", x * relu6(x + 3)), {.window = {2, 2}}));
  Graph out = std::move(b).build();
  out.precision = t == f64 ? f32 : precision;
  return run_passes(training_passes(), out);
}

/// What inference has, all of it of halves.
Graph narrow_nets(DType t, std::int64_t channels, const DepthwiseConv2dOptions& options, std::int64_t window) {
  Builder b("narrow_nets");
  auto row = [&](const char* name) { return b.variable(name, {channels}, {.dtype = t}); };
  const Value x = relu6(b.input("x", t, {kBatch, 7, 6, channels}) * row("scale") + row("shift")), y = depthwise_conv2d(x, b.variable("u", {window, window, channels, 1}, {.dtype = t}), options);
  b.output(relu6(y - row("bias") + b.input("z", t, y.type().shape)));
  return std::move(b).build();
}

TEST(DepthwiseGroups, are_convolutions_with_what_alone_reads_them_and_what_they_alone_read) {
  EXPECT_THAT(groups_with_elementwise(fed_nets(f32, 8)), testing::UnorderedElementsAre(ElementsAre("mul", "add", "relu6", "conv2d", "mul", "add", "relu6"), ElementsAre("minimum", "sub", "conv2d", "mul", "add", "relu"), ElementsAre("add", "relu6", "mul", "conv2d")));
  EXPECT_EQ(groups_with_elementwise(fed_nets(bf16, 8, {}, 5)), (std::vector<std::vector<std::string>>{{"conv2d", "mul", "add", "relu6", "cast"}, {"conv2d", "mul", "cast", "add", "relu"}})) << "25 taps of halves";
  EXPECT_THAT(groups_with_elementwise(fed_nets(bf16, 8)),
              testing::UnorderedElementsAre(ElementsAre("mul", "add", "relu6", "cast", "conv2d", "mul", "add", "relu6", "cast"), ElementsAre("minimum", "sub", "cast", "conv2d", "mul", "cast", "add", "relu"), ElementsAre("add", "relu6", "mul", "cast", "conv2d")));

  EXPECT_THAT(groups_with_elementwise(nets(f32, 8)),
              testing::UnorderedElementsAre(ElementsAre("conv2d", "mul", "add", "relu6"), ElementsAre("conv2d", "mul", "add", "relu"), ElementsAre("conv2d", "greater", "cast", "sub")));
  EXPECT_EQ(groups_with_elementwise(nets(bf16, 8)).size(), 2u) << "where f32 alone is wanted of it a convolution makes that";
  for (DType precision : {f32, bf16}) {
    Graph source = net_named("mobilenet_v2").build(std::make_shared<const OpSet>(standard_ops()), {});
    source.precision = precision;
    const Graph g = run_passes(inference_passes(), for_serving(source, {source.name_of(source.outputs[0])}));
    const auto groups = groups_with_elementwise(g);
    EXPECT_EQ(groups.size(), 17u);
    for (const auto& group : groups) EXPECT_THAT(group, ElementsAre("add", "relu6", "conv2d", "add", "relu6")) << "scales are the filters'";
  }
}

TEST(DepthwiseGroups, are_none_where_the_kernel_takes_none_of_it_or_others_want_what_stays_inside) {
  using More = std::function<void(Builder&, Value x, Value filter)>;
  auto groups = [](const More& more) {
    Builder b("net");
    more(b, b.input("x", f32, {kBatch, 6, 6, 4}), b.variable("filter", {3, 3, 4, 1}));
    return groups_with_elementwise(b.graph()).size();
  };
  EXPECT_EQ(groups([](Builder& b, Value x, Value w) { b.output(relu(depthwise_conv2d(x, w))); }), 1u);
  EXPECT_EQ(groups([](Builder& b, Value x, Value) { b.output(relu(conv2d(x, b.variable("full", {3, 3, 4, 4})))); }), 0u);
  EXPECT_EQ(groups([](Builder& b, Value x, Value) { b.output(relu(depthwise_conv2d(x, b.variable("two", {3, 3, 4, 2})))); }), 0u);
  EXPECT_EQ(groups([](Builder& b, Value x, Value) { b.output(relu(depthwise_conv2d(x, b.variable("large", {6, 5, 4, 1})))); }), 0u);
  EXPECT_EQ(groups([](Builder& b, Value x, Value w) { b.output(tanh(depthwise_conv2d(x, w))); }), 0u) << "not exact";
  EXPECT_EQ(groups([](Builder& b, Value x, Value w) { b.output(depthwise_conv2d(x, w) * b.input("row", f32, {kBatch, 1, 1, 4})); }), 0u);
  EXPECT_EQ(groups([](Builder& b, Value x, Value w) { b.output(depthwise_conv2d(x, w) * b.variable("column", {4, 1})); }), 0u);
  EXPECT_EQ(groups([](Builder& b, Value x, Value w) { Value y = depthwise_conv2d(x, w); b.output(relu(y)); b.output(y); }), 0u);
  EXPECT_EQ(groups([](Builder& b, Value x, Value w) { Value y = depthwise_conv2d(x, w); b.output(relu(y)); b.output(softmax(y)); }), 0u);
  EXPECT_EQ(groups([](Builder& b, Value x, Value w) { Value y = depthwise_conv2d(x, w); b.output(softmax(relu(y))); b.output(softmax(square(y))); }), 0u) << "two trees";
  EXPECT_EQ(groups([](Builder& b, Value x, Value w) { b.output(relu(depthwise_conv2d(x, w) + depthwise_conv2d(x, w, {.dilations = {1, 1}}) * 2)); }), 1u) << "a tree has one";
}

TEST(DepthwiseGroups, have_no_tree_before_them_that_reads_too_much_or_is_wanted_elsewhere) {
  using More = std::function<Value(Builder&, Value x, Value row)>;  // makes x of a convolution with a relu behind
  auto members = [](const More& more, const std::function<void(Builder&, Value)>& other = {}, bool elsewhere = false) {
    Builder b("net");
    Value v = more(b, b.input("x", f32, {kBatch, 6, 6, 4}), b.variable("row", {4}));
    if (other) other(b, v);
    auto on = b.device(elsewhere ? "gpu:1" : "gpu:0");
    b.output(relu(depthwise_conv2d(v, b.variable("filter", {3, 3, 4, 1}))));
    return groups_with_elementwise(b.graph()).at(0).size();
  };
  auto rows = [](Builder& b, Value v, int n) {
    for (int k = 0; k < n; ++k) v = v + b.variable("row" + std::to_string(k), {4});
    return v;
  };
  auto here = [](Builder& b, const std::function<Value()>& made) {
    auto on = b.device("gpu:0");
    return made();
  };
  const More one = [&](Builder& b, Value x, Value row) { return here(b, [&] { return x * row; }); };
  EXPECT_EQ(members(one), 3u);
  EXPECT_EQ(members(one, {}, true), 2u) << "of another device";
  EXPECT_EQ(members(one, [](Builder& b, Value v) { b.output(v); }), 2u);
  EXPECT_EQ(members(one, [](Builder& b, Value v) { b.output(softmax(v)); }), 2u);
  EXPECT_EQ(members([&](Builder& b, Value x, Value) { return here(b, [&] { return tanh(x); }); }), 2u) << "not exact";
  EXPECT_EQ(members([&](Builder& b, Value x, Value) { return here(b, [&] { return x + b.input("z", f32, {kBatch, 6, 6, 4}); }); }), 2u) << "two values of its shape";
  EXPECT_EQ(members([&](Builder& b, Value x, Value) { return here(b, [&] { return x * b.input("pixel", f32, {kBatch, 6, 6, 1}); }); }), 2u);
  EXPECT_EQ(members([&](Builder& b, Value x, Value) { return here(b, [&] { return rows(b, x, 2); }); }), 4u);
  EXPECT_EQ(members([&](Builder& b, Value x, Value) { return here(b, [&] { return rows(b, x, 3); }); }), 2u) << "it holds no more per channel";
}

/// A scale that is trained has a gradient, which reads y; a norm that is frozen is a scale and a shift.
TEST(DepthwiseGroups, in_training_are_those_of_which_no_gradient_reads_what_stays_inside) {
  auto groups = [](const std::function<Value(Builder&, Value y)>& norm) {
    Builder b("net");
    Value y = depthwise_conv2d(b.input("x", f32, {kBatch, 6, 6, 4}) * b.variable("before", {4}), b.variable("filter", {3, 3, 4, 1}));
    b.minimize(reduce_sum(relu6(norm(b, y))), Sgd{});
    return groups_with_elementwise(run_passes(training_passes(), std::move(b).build()));
  };
  auto scaled = [](bool trained) { return [trained](Builder& b, Value y) { return y * b.variable("scale", {4}, {.trainable = trained}) + b.variable("shift", {4}); }; };
  EXPECT_THAT(groups(scaled(false)), ElementsAre(ElementsAre("conv2d", "mul", "add", "relu6"))) << "the filter's gradient reads x";
  EXPECT_THAT(groups(scaled(true)), testing::IsEmpty());
  EXPECT_THAT(groups([](Builder&, Value y) { return nn::batch_norm(y, {.trainable = false}); }), ElementsAre(ElementsAre("conv2d", "mul", "add", "relu6")));
  EXPECT_THAT(groups_with_elementwise(training_graph(net("bent_convolutions"), f32)),
              testing::UnorderedElementsAre(ElementsAre("relu6", "mul", "add", "conv2d", "relu"), ElementsAre("mul", "add", "conv2d", "mul", "add", "add"), ElementsAre("abs", "mul", "add", "conv2d")));
  EXPECT_THAT(groups([](Builder&, Value y) { return nn::batch_norm(y); }), ElementsAre(ElementsAre("batch_norm", "relu6")));
}

// ---------------------------------------------------------------- plans

PlacedGraph placed_with(const std::shared_ptr<const Graph>& graph, bool grouped, std::vector<std::pair<std::string, ValueId>> fetches) {
  PlaceOptions options{.fetches = std::move(fetches)};
  options.updates = false;
  options.kernels = chooser({{"cpu", generated_kernels(std::make_shared<HostGpu>())}});
  if (grouped) options.groups = find_gpu_groups;
  PlacedGraph plan = place(graph, to_strategy(Single{.device = cpu(0), .threads = 1}), sim_cluster(1), 8, options);
  EXPECT_THAT(verify(plan), testing::IsEmpty());
  return plan;
}

/// Between the members nothing is read or written, and what is asked for inside is computed beside. The arithmetic is that of the members, which have the same kernel alone.
TEST(DepthwiseGroups, move_no_more_than_they_read_from_outside_and_make) {
  for (auto [precision, fed] : {std::pair{f32, false}, {bf16, false}, {f32, true}, {bf16, true}}) {
    auto graph = std::make_shared<const Graph>(fed ? fed_nets(precision, 8) : nets(precision, 8));
    std::vector<std::pair<std::string, ValueId>> outputs;
    for (ValueId v : graph->outputs) outputs.emplace_back(graph->name_of(v), v);
    const PlacedGraph plan = placed_with(graph, true, outputs);
    int met = 0;
    for (const PlanNode& n : plan.nodes) {
      if (n.op != kFused || n.attributes.text("kind") != kWithElementwise) continue;
      double bytes = 0, flops = 0;
      for (const auto* values : {&n.inputs, &n.outputs})
        for (ValueIndex v : *values) bytes += static_cast<double>(local_type(plan.value(v), plan.share(0)).bytes());
      for (const Member& m : n.members) flops += graph->node(m.node).op->name == "conv2d" ? 2.0 * 9 * 8 * 5 * 4 * 8 : 0;
      const Work work = work_of(plan, n, plan.share(0), 1);
      EXPECT_EQ(n.by_class[0].kernel, "nvrtc_depthwise_conv2d");
      EXPECT_EQ(n.by_class[0].scratch_bytes, 0);
      EXPECT_EQ(work.bytes, bytes) << n.name;
      EXPECT_GT(work.flops, flops) << n.name;
      EXPECT_LE(work.flops, 1.7 * flops) << n.name;
      ++met;
    }
    EXPECT_EQ(met, is_half(precision) && !fed ? 2 : 3);
    const std::string text = write_plan(plan);
    EXPECT_TRUE(write_plan(read_plan(text, "plan.json", graph->shared_ops())) == text);
    for (NodeId id = 0; id < graph->size(); ++id)
      if (graph->node(id).op->name == "conv2d") outputs.emplace_back(graph->node(id).name, ValueId{id, 0});
    const PlacedGraph asked = placed_with(graph, true, outputs);
    EXPECT_EQ(asked.arithmetic_hash, plan.arithmetic_hash);
    EXPECT_EQ(placed_with(graph, false, outputs).arithmetic_hash, plan.arithmetic_hash);
    EXPECT_EQ(std::count_if(asked.nodes.begin(), asked.nodes.end(), [](const PlanNode& n) { return n.op == "conv2d"; }), fed ? 2 : 3) << "one of them is all that its group makes";
  }
}

// ---------------------------------------------------------------- kernels

/// Over what a tree before the convolution reads nothing may be written: its neighbours are read yet.
TEST(DepthwiseGroups, write_over_what_lies_behind_the_convolution_alone) {
  auto graph = std::make_shared<const Graph>(fed_nets(f32, 8, {.padding = "same"}));
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (ValueId v : graph->outputs) outputs.emplace_back(graph->name_of(v), v);
  const PlacedGraph plan = placed_with(graph, true, outputs);
  int over = 0;
  for (const PlanNode& n : plan.nodes) {
    if (n.op != kFused || n.attributes.text("kind") != kWithElementwise) continue;
    EXPECT_EQ(plan.value(n.inputs[0]).type, plan.value(n.outputs[0]).type) << n.name;
    for (auto [output, input] : in_place_pairs(plan, n)) {
      EXPECT_THAT(plan.value(n.inputs[static_cast<std::size_t>(input)]).name, testing::StartsWith("z")) << n.name;
      ++over;
    }
  }
  EXPECT_EQ(over, 1);
}

/// Of which x holds a NaN and infinities, with its kernel and its members' own.
struct Convolution {
  Convolution(std::shared_ptr<const Graph> graph, const FusionGroup& group) : g(std::move(graph)), drawn(*g, group, kPictures) {
    HostTensor wide = converted(drawn.inputs[0], f64);
    const std::span<double> x = wide.data<double>();
    x[0] = std::numeric_limits<double>::quiet_NaN(), x[x.size() / 2] = std::numeric_limits<double>::infinity(), x[x.size() - 1] = -x[x.size() / 2];
    drawn.inputs[0] = converted(wide, drawn.inputs[0].dtype());
  }

  void prepare(const KernelTable& table) {
    const auto choice = table.choose(drawn.request);
    KernelRequest unshared = drawn.request;
    unshared.share = {};
    EXPECT_EQ(table.choose(unshared).name, choice.name) << "who makes a plan knows no share";
    by = choice.name;
    scratch_bytes = choice.support.scratch_bytes;
    kernel = table.prepare(by, drawn.request, {scratch_bytes, false});
    alone = drawn.own_kernels(table);
  }
  bool fed() const { return g->node(drawn.group.members.front()).op->name != "conv2d"; }
  /// Where it stands among the inputs.
  std::size_t filter() const {
    std::size_t out = 0, m = 0;
    for (; drawn.request.members[m]->op->name != "conv2d"; ++m) out += static_cast<std::size_t>(std::count(drawn.request.inner[m].begin(), drawn.request.inner[m].end(), ""));
    return out + (m == 0);
  }
  HostTensor run(std::size_t past = 0, int over = -1) { return drawn.run(*kernel, scratch_bytes, past, over)[0]; }

  std::shared_ptr<const Graph> g;
  DrawnGroup drawn;
  std::string by;
  std::int64_t scratch_bytes = 0;
  std::unique_ptr<Prepared> kernel;
  std::vector<DrawnGroup::Alone> alone;
};

void add_groups(Graph graph, std::vector<Convolution>& to) {
  const std::size_t before = to.size();
  const std::size_t groups = graph.name == "narrow_nets" ? 1 : is_half(graph.precision.dtype) && graph.name != "fed_nets" ? 2 : 3;
  auto g = std::make_shared<const Graph>(std::move(graph));
  for (const FusionGroup& group : find_gpu_groups(*g))
    if (group.kind == kWithElementwise) to.emplace_back(g, group);
  EXPECT_EQ(to.size() - before, groups);
}

void expect_bits_of_members(std::vector<Convolution>& all, const KernelTable& table, const std::string& by, const std::function<void()>& build) {
  for (Convolution& d : all) d.prepare(table);
  build();
  int over_inputs = 0;
  for (Convolution& d : all) {
    const std::vector<HostTensor>& inputs = d.drawn.inputs;
    const std::string& last = d.g->node(d.drawn.group.members.back()).op->name;
    const std::string what = std::string(d.fed() ? "fed " : "") + last + " of " + std::string(name_of(inputs[0].dtype())) + ", " + std::to_string(inputs[0].shape().back()) + " channels";
    EXPECT_EQ(d.by, by) << what;
    const HostTensor want = d.drawn.one_by_one(d.alone)[0];
    EXPECT_EQ(d.run(), want) << what;
    EXPECT_EQ(d.run(1), want) << what << ", one element behind a multiple of 16";
    for (std::size_t i = d.filter() + 1; i < inputs.size(); ++i)
      if (inputs[i].type() == want.type()) {
        EXPECT_EQ(d.run(0, static_cast<int>(i)), want) << what << " over input " << i;
        ++over_inputs;
      }
    const HostTensor wide = converted(want, f64);
    EXPECT_EQ(std::isnan(wide.data<double>()[0]), last != "sub") << what;  // which subtracts from whether one is greater
  }
  EXPECT_GE(over_inputs, static_cast<int>(all.size()) / 3);
}

TEST(DepthwiseGroups, have_the_bits_of_their_members) {
  std::vector<Convolution> all;
  for (DType t : {f32, f64, f16, bf16})
    for (std::int64_t channels : {8, 7})
      for (auto* of : {nets, fed_nets}) add_groups(of(t, channels, {.strides = {2, 2}, .padding = "same"}, 3), all);
  expect_bits_of_members(all, cpu_kernels(), "members_in_turn", [] {});
  expect_bits_of_members(all, {}, kReferenceKernel, [] {});
}

/// In packs and one by one, runs of windows that end beyond the picture, windows that begin before it.
TEST(DepthwiseGroups, have_the_bits_of_their_members_in_generated_kernels) {
  auto host = std::make_shared<HostGpu>();
  std::vector<Convolution> all;
  for (DType t : {f32, f64, f16, bf16}) {
    for (std::int64_t channels : {8, 7})
      for (const DepthwiseConv2dOptions& form : {DepthwiseConv2dOptions{}, {.padding = "same"}, {.strides = {2, 2}, .padding = "same"}, {.strides = {2, 1}, .dilations = {1, 2}}, {.strides = {1, 2}, .dilations = {2, 1}}}) {
        for (auto* of : {nets, fed_nets}) add_groups(of(t, channels, form, 3), all);
        if (is_half(t)) add_groups(narrow_nets(t, channels, form, 3), all);
      }
    add_groups(nets(t, 24, {.padding = "same"}, 5), all);
    if (!is_half(t)) add_groups(fed_nets(t, 24, {.padding = "same"}, 5), all);
  }
  expect_bits_of_members(all, generated_kernels(host), "nvrtc_depthwise_conv2d", [&] { host->build(); });
}

/// Tells which entries are launched, and computes nothing.
struct ToldCode : GpuCode {
  struct Told : GpuFunction {
    Told(std::string name, std::vector<std::string>& to) : entry(std::move(name)), launched(to) {}
    void launch(Grid, std::span<const std::uint64_t>, void*) override { launched.push_back(entry); }
    std::string entry;
    std::vector<std::string>& launched;
  };
  std::shared_ptr<GpuFunction> make(const std::string&, const std::string& entry, std::size_t) override { return std::make_shared<Told>(entry, launched); }
  std::vector<std::string> launched;
};

/// A GPU cannot read a pack elsewhere; the host can.
TEST(DepthwiseGroups, are_packs_where_all_that_is_read_or_written_so_lies_by_16_bytes) {
  auto code = std::make_shared<ToldCode>();
  std::vector<Convolution> all;
  for (auto* of : {nets, fed_nets}) add_groups(of(f32, 8, {}, 3), all);
  for (Convolution& d : all) {
    d.prepare(generated_kernels(code));
    const std::vector<HostTensor>& inputs = d.drawn.inputs;
    for (std::size_t apart = 0; apart <= inputs.size() + 1; ++apart) {  // one of the inputs, the output, or none
      Arguments a;
      auto at = [&](std::size_t k) { return reinterpret_cast<std::byte*>(4096 * (k + 1) + (k == apart ? 4 : 0)); };
      for (std::size_t i = 0; i < inputs.size(); ++i) a.inputs.push_back(at(i));
      a.outputs = {at(inputs.size())};
      d.kernel->launch(a);
      const bool in_packs = apart > inputs.size() || (apart < inputs.size() && inputs[apart].shape().empty());
      EXPECT_EQ(code->launched.back(), in_packs ? "wide" : "narrow") << apart;
    }
  }
}

/// What a hand may write into a plan is refused.
TEST(DepthwiseGroups, of_other_members_have_no_kernel_of_their_own) {
  const KernelTable table = generated_kernels(std::make_shared<HostGpu>());
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 6, 6, 4}), filter = b.variable("filter", {3, 3, 4, 1});
  Value of_full = conv2d(x, b.variable("full", {3, 3, 4, 4})), bent = relu(of_full), y = depthwise_conv2d(x, filter), by_column = y * b.variable("column", {4, 1}), weights = softmax(y), moved = b.graph().add("broadcast_like", {y, b.input("like", f32, {kBatch, 4, 4, 4})}, {});
  for (Value v : {bent, by_column, weights, moved}) b.output(v);
  auto g = std::make_shared<const Graph>(b.graph());
  auto asked = [&](Value first, Value last) {
    return table.choose(DrawnGroup(*g, {kWithElementwise, {first.id.node, last.id.node}}, kPictures).request).name;
  };
  EXPECT_EQ(asked(of_full, bent), kReferenceKernel);
  EXPECT_EQ(asked(y, by_column), kReferenceKernel);
  EXPECT_EQ(asked(y, weights), kReferenceKernel);
  EXPECT_EQ(asked(y, moved), kReferenceKernel);
  const Value scaled = x * b.variable("scale", {4}), of_scaled = depthwise_conv2d(scaled, filter, {.strides = {2, 2}}), again = relu(of_scaled);
  const Value weighed = softmax(x), of_weighed = depthwise_conv2d(weighed, filter), of_filter = relu(filter), by_made = depthwise_conv2d(x, of_filter);
  const Value both = depthwise_conv2d(scaled, filter, {.padding = "same"}), beyond = both + scaled, pixel = x * b.input("pixel", f32, {kBatch, 6, 6, 1}), of_pixel = depthwise_conv2d(pixel, filter);
  for (Value v : {again, of_weighed, by_made, beyond, of_pixel}) b.output(v);
  g = std::make_shared<const Graph>(b.graph());
  auto members = [&](const std::vector<Value>& values) {
    FusionGroup group{kWithElementwise, {}};
    for (Value v : values) group.members.push_back(v.id.node);
    return table.choose(DrawnGroup(*g, group, kPictures).request).name;
  };
  EXPECT_EQ(members({scaled, of_scaled, again}), "nvrtc_depthwise_conv2d");
  EXPECT_EQ(members({scaled, of_scaled}), "nvrtc_depthwise_conv2d");
  EXPECT_EQ(members({scaled, again}), kReferenceKernel) << "no convolution";
  EXPECT_EQ(members({weighed, of_weighed}), kReferenceKernel);
  EXPECT_EQ(members({of_filter, by_made}), kReferenceKernel) << "its filter";
  EXPECT_EQ(members({scaled, of_weighed}), kReferenceKernel) << "which reads something else";
  EXPECT_EQ(members({scaled, both, beyond}), kReferenceKernel) << "what lies inside before it is read behind it";
  EXPECT_EQ(members({pixel, of_pixel}), kReferenceKernel);
}

}  // namespace
}  // namespace belfry::test
