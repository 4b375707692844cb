// A norm or its gradient and the elementwise nodes behind or before it as one node: found, taken, and of the bits of the members.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <belfry/belfry.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/place.h>
#include <belfry/placer/strategies/strategies.h>
#ifdef BELFRY_CXX
#include <belfry/ops/cuda_kernels.h>

#include "host_gpu.h"
#endif

#include "drawn_group.h"
#include "from_file.h"
#include "op_case.h"
#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kRows = 5;

/// One norm with a relu behind it, whose gradient is the norm's, and a product; one whose sum with a shortcut is bent.
Graph net(DType precision, std::int64_t channels, const std::function<void(Builder&, Value, Value)>& more = {}) {
  const DType t = precision == f64 ? f64 : f32;
  Builder b("net");
  auto product = [&](Value v, const char* name) { return matmul(v, b.variable(name, {channels, channels}, {.dtype = t, .init = "normal", .init_value = 0.7})); };
  Value x = b.input("x", t, {kBatch, 3, channels}), h = relu(nn::batch_norm(product(x, "v")));
  Value z = nn::batch_norm(product(h * product(x, "gain"), "w")), end = relu6(z + product(x, "u"));
  if (more) more(b, z, end);
  b.minimize(reduce_sum(square(end)), Sgd{.learning_rate = 0.01});
  Graph out = std::move(b).build();
  out.precision = t == f64 ? f32 : precision;
  return run_passes(training_passes(), out);
}

TEST(NormGroups, are_norms_with_what_alone_reads_them_and_gradients_with_what_they_alone_read) {
  EXPECT_THAT(groups_with_elementwise(net(f32, 8)), testing::UnorderedElementsAre(ElementsAre("batch_norm", "relu"), ElementsAre("batch_norm", "add", "relu6"), ElementsAre("mul", "batch_norm_gradient")));
}

TEST(NormGroups, are_none_where_others_want_what_stays_inside_or_a_tree_reads_other_shapes) {
  EXPECT_EQ(groups_with_elementwise(net(f32, 8, [](Builder& b, Value z, Value) { b.output(z); })).size(), 2u);
  EXPECT_EQ(groups_with_elementwise(net(f32, 8, [](Builder& b, Value z, Value) { b.output(identity(z)); })).size(), 2u);
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 8});
  b.output(relu(nn::batch_norm(x)) * b.variable("row", {8}));
  b.output(tanh(nn::batch_norm(x)));  // counts by its kernel in the arithmetic: apart and in the group by another
  EXPECT_TRUE(groups_with_elementwise(b.graph()).empty());
}

/// Blocks that add to what they normalise. The gradient of the last norm is read by two.
Graph residuals(DType precision, const std::function<Value(Value)>& norm = [](Value x) { return nn::layer_norm(x); }) {
  Builder b("net");
  Value h = b.input("x", f32, {kBatch, 3, 8}) * b.variable("gain", {8});
  for (const char* name : {"v", "w"}) h = h + matmul(norm(h), b.variable(name, {8, 8}));
  b.minimize(reduce_sum(square(matmul(norm(h), b.variable("u", {8, 8})))), Sgd{.learning_rate = 0.01});
  Graph out = std::move(b).build();
  out.precision = precision;
  return run_passes(training_passes(), out);
}

TEST(NormGroups, are_gradients_of_layer_norms_with_the_sums_that_alone_read_their_dx) {
  for (DType t : {f32, bf16}) {
    EXPECT_THAT(groups_with_elementwise(residuals(t)), testing::UnorderedElementsAre(ElementsAre("layer_norm_gradient", "add_n"), ElementsAre("layer_norm_gradient", "add_n", "mul"))) << name_of(t);
    EXPECT_EQ(groups_with_elementwise(residuals(t, [](Value x) { return nn::rms_norm(x); })).size(), 2u);
    EXPECT_THAT(groups_with_elementwise(residuals(t, [](Value x) { return nn::group_norm(x, {.groups = 2}); })), testing::Contains(ElementsAre("group_norm_gradient", "add_n")));
  }
}

/// Of a gradient with x and dy in these types, and what reads its dx.
std::vector<std::vector<std::string>> groups_behind_dx(DType x, DType dy, const std::function<void(Builder&, Value)>& readers) {
  Builder b("net");
  const Value moments = b.input("moments", f32, {kBatch}), slope = b.input("dy", dy, {kBatch, 8});
  readers(b, b.graph().add("layer_norm_gradient", {b.input("x", x, {kBatch, 8}), moments, moments, slope}, {{"wide", x != dy}}));
  return groups_with_elementwise(b.graph());
}

TEST(NormGroups, of_gradients_are_of_one_type_but_for_dy) {
  auto sum = [](Builder& b, Value dx) { b.output(add_n({b.input("other", dx.dtype(), {kBatch, 8}), dx})); };
  for (auto [x, dy] : {std::pair{f32, f32}, {bf16, bf16}, {f16, f16}, {f32, f16}}) EXPECT_EQ(groups_behind_dx(x, dy, sum).size(), 1u) << name_of(x) << " and " << name_of(dy);
  EXPECT_TRUE(groups_behind_dx(bf16, f32, sum).empty());  // dx is f32
  EXPECT_TRUE(groups_behind_dx(f32, f32, [](Builder& b, Value dx) { b.output(cast(dx + b.input("other", f32, {kBatch, 8}), bf16)); }).empty());
  EXPECT_TRUE(groups_behind_dx(f32, f32, [](Builder& b, Value dx) { b.output(dx * b.input("row", f32, {8})); }).empty());
  EXPECT_TRUE(groups_behind_dx(f32, f32, [](Builder& b, Value dx) { b.output(tanh(dx)); }).empty());
  EXPECT_TRUE(groups_behind_dx(f32, f32, [](Builder& b, Value dx) { b.output(relu(dx)), b.output(identity(dx)); }).empty());
  EXPECT_TRUE(groups_behind_dx(f32, f32, [](Builder& b, Value dx) { b.output(dx + matmul(b.input("a", f32, {kBatch, 4}), b.input("w", f32, {4, 8}))); }).empty());  // a product adds it on the way
}

TEST(NormGroups, read_no_value_that_comes_of_what_they_give_away) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 8}), y = batch_norm(x, b.variable("gamma", {8}), b.variable("beta", {8}), b.variable("mean", {8}), b.variable("variance", {8}));
  Value beside = tanh(x - y.output(1)), bent = relu(y + beside);
  b.metric("bent", bent);
  auto graph = std::make_shared<const Graph>(run_passes(inference_passes(), b.graph()));
  NodeId norm = graph->find_node("batch_norm"), sum = graph->find_node("add"), last = graph->find_node("relu");
  ASSERT_TRUE(norm >= 0 && sum >= 0 && last >= 0);
  PlaceOptions options{.fetches = fetches_of(*graph)};
  options.groups = [&](const Graph&) { return std::vector<FusionGroup>{{kWithElementwise, {norm, sum, last}}}; };
  const PlacedGraph plan = place(graph, to_strategy(Single{.device = cpu(0), .threads = 1}), sim_cluster(1), 4, options);
  EXPECT_TRUE(std::none_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.op == kFused; }));
  EXPECT_TRUE(verify(plan).empty());
}

/// Two norms, of which each one's tree reads what comes of the other's mean; and trees that end in the other order than their norms begin.
TEST(NormGroups, wait_for_each_other_in_one_order) {
  auto taken = [](bool crossed) {
    Builder b("net");
    Value x = b.input("x", f32, {kBatch, 8});
    auto norm = [&](const char* name) {
      auto made = [&](const char* of) { return b.variable(std::string(name) + of, {8}); };
      return batch_norm(x, made("/gamma"), made("/beta"), made("/mean"), made("/variance"));
    };
    Value one = norm("one"), two = norm("two"), of_one = softmax(x - one.output(1)), of_two = softmax(x - two.output(1));
    b.metric("one", relu(one + (crossed ? of_two : x)));
    b.metric("two", relu(two + of_one));
    auto graph = std::make_shared<const Graph>(run_passes(inference_passes(), b.graph()));
    PlaceOptions options{.fetches = fetches_of(*graph), .groups = find_gpu_groups};
    const PlacedGraph plan = place(graph, to_strategy(Single{.device = cpu(0), .threads = 1}), sim_cluster(1), 4, options);
    EXPECT_TRUE(verify(plan).empty());
    return std::count_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.op == kFused && n.attributes.text("kind") == kWithElementwise; });
  };
  EXPECT_EQ(taken(false), 2);
  EXPECT_EQ(taken(true), 1);
}

// ---------------------------------------------------------------- plans

PlacedGraph placed(const std::shared_ptr<const Graph>& graph, PlaceOptions options, bool grouped = true) {
  options.kernels = chooser({{"cpu", cpu_kernels()}, {"sim", cpu_kernels()}});
  if (grouped) options.groups = find_gpu_groups;
  PlacedGraph plan = place(graph, to_strategy(Mirrored{.devices = sims(2), .towers = 4, .threads = 1}), sim_cluster(2), 8, options);
  const std::vector<std::string> objections = verify(plan);
  EXPECT_TRUE(objections.empty()) << objections.front();
  return plan;
}

std::vector<const PlanNode*> groups_in(const PlacedGraph& plan) {
  std::vector<const PlanNode*> out;
  for (const PlanNode& n : plan.nodes)
    if (n.op == kFused && n.attributes.text("kind") == kWithElementwise) out.push_back(&n);
  return out;
}

TEST(NormGroups, give_what_their_norms_give_to_others_by_its_name) {
  auto graph = std::make_shared<const Graph>(net(f32, 8));
  const PlacedGraph plan = placed(graph, {});
  const std::vector<const PlanNode*> groups = groups_in(plan);
  ASSERT_EQ(groups.size(), 3u);
  const PlanNode& n = *groups[0];
  EXPECT_EQ(n.name, "relu");
  std::vector<std::string> names;
  for (ValueIndex v : n.outputs) names.push_back(plan.value(v).name);
  EXPECT_THAT(names, ElementsAre("relu", "batch_norm/batch_norm:1", "batch_norm/batch_norm:2", "batch_norm/batch_norm:3"));
  EXPECT_EQ(plan.value(n.outputs[1]).state, kPerTower);
  EXPECT_TRUE(plan.value(n.outputs[1]).read);
  EXPECT_FALSE(plan.value(n.outputs[3]).read);
  EXPECT_EQ(std::count(n.inputs.begin(), n.inputs.end(), -1), 2);  // running statistics, of which the norm reads the shape
  expect_same_from_file(plan);
}

/// Sums over towers are of what a norm's gradient makes besides.
TEST(NormGroups, of_gradients_give_their_parameters_gradients_to_the_sums_over_towers) {
  for (DType t : {f32, bf16}) {
    auto graph = std::make_shared<const Graph>(residuals(t));
    const PlacedGraph plan = placed(graph, {});
    const std::vector<const PlanNode*> groups = groups_in(plan);
    ASSERT_EQ(groups.size(), 2u);
    const PlanNode& n = *groups[0];
    ASSERT_EQ(n.outputs.size(), 3u);
    EXPECT_EQ(plan.value(n.outputs[0]).state, rows(0));
    for (std::size_t k : {1u, 2u}) {
      const PlanValue& v = plan.value(n.outputs[k]);
      EXPECT_EQ(v.name, plan.graph->node(n.members[0].node).name + ":" + std::to_string(k));
      EXPECT_TRUE(v.state.is_partial() && v.read) << v.name;
    }
    expect_same_from_file(plan);
    EXPECT_EQ(groups_in(placed(graph, {.fetches = {{"dx", {n.members[0].node, 0}}}})).size(), 1u);
  }
}

/// Their kernels are the members' here, and have the members' bits anywhere: the arithmetic is the same without them.
TEST(NormGroups, give_way_to_who_asks_for_what_is_inside_and_change_no_arithmetic) {
  auto graph = std::make_shared<const Graph>(net(f32, 8));
  const PlacedGraph plan = placed(graph, {});
  auto norms = [](const PlacedGraph& p) {
    std::vector<std::string> out;
    for (const PlanNode& n : p.nodes)
      if (n.op == "batch_norm") out.push_back(n.name);
    return out;
  };
  const ValueId inner = *graph->find("batch_norm_1/batch_norm");
  const PlacedGraph fetched = placed(graph, {.fetches = {{"z", inner}}});
  EXPECT_TRUE(norms(plan).empty());
  EXPECT_THAT(norms(fetched), ElementsAre("batch_norm_1/batch_norm"));
  const PlacedGraph statistic = placed(graph, {.fetches = {{"batch_norm_1/batch_norm:1@towers", {inner.node, 1}}}});
  EXPECT_TRUE(norms(statistic).empty());
  EXPECT_EQ(statistic.arithmetic_hash, plan.arithmetic_hash);
}

TEST(NormGroups, are_computed_again_with_all_that_they_give) {
  auto graph = std::make_shared<const Graph>(net(f32, 8));
  const PlacedGraph plan = placed(graph, {.recompute = {0, {"relu"}}});
  EXPECT_TRUE(write_plan(placed(graph, {.recompute = {0, {"batch_norm/batch_norm"}}})) == write_plan(plan));
  auto at = std::find_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.again; });
  ASSERT_NE(at, plan.nodes.end());
  EXPECT_EQ(at->name, "relu.again");
  EXPECT_EQ(plan.value(at->outputs[1]).name, "batch_norm/batch_norm.again:1");
  const std::string text = write_plan(plan);
  const PlacedGraph again = read_plan(text, "plan.json", graph->shared_ops());
  EXPECT_TRUE(verify(again).empty());
  EXPECT_TRUE(write_plan(again) == text);
  EXPECT_EQ(plan.arithmetic_hash, placed(graph, {}).arithmetic_hash);
}

TEST(NormGroups, are_refused_under_other_names) {
  auto graph = std::make_shared<const Graph>(net(f32, 8));
  const PlacedGraph plan = placed(graph, {});
  PlacedGraph renamed = plan;
  renamed.values[static_cast<std::size_t>(groups_in(renamed)[0]->outputs[1])].name = "other:5";
  EXPECT_THAT(verify(renamed), testing::Contains("dangling: output 1 of 'relu' is called 'other:5', but is 'batch_norm/batch_norm:1'"));
  const std::string text = write_plan(plan), name = "{\"name\": \"batch_norm/batch_norm:1\"";
  ASSERT_NE(text.find(name), text.npos);
  auto with = [&](const std::string& other) {
    std::string edited = text;
    edited.replace(edited.find(name), name.size(), "{" + other);
    return message_of([&] { read_plan(edited, "plan.json", graph->shared_ops()); });
  };
  EXPECT_THAT(with("\"name\": \"batch_norm/batch_norm:2\""), testing::HasSubstr("the name 'batch_norm/batch_norm:2' is taken"));
  std::string orphan = write_plan(placed(graph, {.recompute = {0, {"relu"}}}));
  const std::string cause = "\"cause\": \"relu\", \"again\"";
  ASSERT_NE(orphan.find(cause), orphan.npos);
  orphan.replace(orphan.find(cause), cause.size(), "\"cause\": \"matmul\", \"again\"");
  EXPECT_THAT(message_of([&] { read_plan(orphan, "plan.json", graph->shared_ops()); }), testing::HasSubstr("'relu.again' is fused, but stands for no nodes of the graph"));
  EXPECT_THAT(with("\"note\": \"\""), testing::HasSubstr("the plan has no value 'batch_norm/batch_norm:1'"));
}

// ---------------------------------------------------------------- kernels

void expect_bits(DType precision, std::int64_t channels, std::int64_t rows, const KernelTable& table, const std::string& by, const std::function<void()>& build = {}) {
  const Graph g = net(precision, channels);
  int met = 0, over_inputs = 0;
  for (const FusionGroup& group : find_gpu_groups(g)) {
    if (group.kind != kWithElementwise) continue;
    const DrawnGroup d(g, group, rows);
    const KernelTable::Choice choice = table.choose(d.request);
    ASSERT_EQ(choice.name, by);
    auto kernel = table.prepare(by, d.request, {choice.support.scratch_bytes, false});
    const std::vector<HostTensor> want = d.one_by_one(table, build);
    if (build) build();
    EXPECT_EQ(d.run(*kernel, choice.support.scratch_bytes), want) << g.node(group.members.back()).name << " of " << name_of(precision);
    EXPECT_EQ(d.run(*kernel, choice.support.scratch_bytes, 1), want) << "one element behind a multiple of 16";
    int overs = 0;
    const bool norm_first = g.node(group.members.front()).op->name == "batch_norm";
    for (std::size_t i = 0; i < d.inputs.size(); ++i)  // what a plan may write the group over: what its tree reads
      if (const bool of_tree = norm_first ? i >= 5 : i + 5 < d.inputs.size(); of_tree && d.inputs[i].type() == want[0].type()) {
        EXPECT_EQ(d.run(*kernel, choice.support.scratch_bytes, 0, static_cast<int>(i)), want) << g.node(group.members.back()).name << " over input " << i;
        ++overs;
      }
    over_inputs += overs;
    const std::vector<HostTensor> reference = d.run(*table.prepare(kReferenceKernel, d.request), 0);
    for (std::size_t k = 0; k < want.size(); ++k) EXPECT_LE(distance(reference[k], want[k]), is_half(precision) ? 0x1p-4 : 1e-4) << k;
    ++met;
  }
  EXPECT_EQ(met, 3);
  EXPECT_EQ(over_inputs, 3);
}

TEST(NormGroups, have_the_bits_of_their_members) {
  for (DType t : {f32, f64, f16, bf16}) expect_bits(t, 8, kRows, cpu_kernels(), "members_in_turn");
}

#ifdef BELFRY_CXX
/// In packs and one by one, in one block, in several, and in more than the last launch joins.
TEST(NormGroups, have_the_bits_of_their_members_in_generated_kernels) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  for (DType t : {f32, f64, f16, bf16})
    for (auto [channels, rows] : {std::pair<std::int64_t, std::int64_t>{8, kRows}, {7, kRows}, {16, 700}, {16, 2800}}) expect_bits(t, channels, rows, table, "nvrtc_batch_norm", [&] { host->build(); });
}

/// What a hand may write into a plan is refused, or computed by its members in turn.
TEST(NormGroups, of_other_members_have_no_kernel_of_their_own) {
  const KernelTable table = generated_kernels(std::make_shared<HostGpu>());
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 8}), row = b.variable("row", {8});
  b.output(relu(nn::batch_norm(x) * row));
  b.output(tanh(softmax(x)));
  const Value moments = b.input("moments", f32, {kBatch}), half = b.input("half", bf16, {kBatch, 8});
  b.output(b.graph().add("layer_norm_gradient", {x, moments, moments, x}, {}, "dx") * row);
  b.output(abs(b.graph().add("layer_norm_gradient", {half, moments, moments, x}, {{"wide", true}}, "wide_dx")));
  b.output(neg(b.graph().add("layer_norm_gradient", {x, moments, moments, half}, {{"wide", true}}, "dx_of_half")));
  const Graph& g = b.graph();
  auto asked = [&](std::vector<std::string> names) {
    FusionGroup group{kWithElementwise, {}};
    for (const std::string& name : names) group.members.push_back(g.find_node(name));
    return table.choose(DrawnGroup(g, group, kRows).request).name;
  };
  EXPECT_EQ(asked({"batch_norm/batch_norm", "mul", "relu"}), kReferenceKernel);
  EXPECT_EQ(asked({"softmax", "tanh"}), kReferenceKernel);
  EXPECT_EQ(asked({"dx", "mul_1"}), kReferenceKernel);
  EXPECT_EQ(asked({"wide_dx", "abs"}), kReferenceKernel);
  EXPECT_EQ(asked({"dx_of_half", "neg"}), "nvrtc_norm");
}
#endif

}  // namespace
}  // namespace belfry::test
