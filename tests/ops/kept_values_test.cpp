// Groups that give what a member makes, too, in plans: found, taken, written, read, and of the values that the members have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <belfry/belfry.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/plan/cost.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/place.h>
#include <belfry/placer/strategies/strategies.h>

#include "drawn_group.h"
#include "from_file.h"
#include "nets.h"
#include "op_case.h"
#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

/// Blocks of a norm and a product with a bias, which add to what they read. The bias of the block before is summed beside the gradient of each norm.
Graph biased_residuals(DType precision, std::int64_t width = 256, bool biased = true) {
  Builder b("net");
  Value h = b.input("x", f32, {kBatch, 3, width}) * b.variable("gain", {width});
  for (const char* name : {"v", "w", "u"}) {
    h = h + matmul(nn::layer_norm(h), b.variable(name, {width, width}, {.init = "normal", .init_value = 0.05}));
    if (biased) h = h + b.variable(std::string(name) + "/bias", {width});
  }
  b.minimize(reduce_sum(square(nn::layer_norm(h))), Sgd{.learning_rate = 0.01});
  Graph out = std::move(b).build();
  out.precision = precision;
  return run_passes(training_passes(), out);
}

TEST(KeptValues, are_what_gradients_of_norms_make_that_is_summed_over_rows) {
  const std::vector<std::string> gain = {"layer_norm_gradient", "add_n", "mul", "reduce_sum"};
  EXPECT_THAT(groups_with_elementwise(biased_residuals(f32)), ElementsAre(ElementsAre("layer_norm_gradient", "add_n", "reduce_sum"), ElementsAre("layer_norm_gradient", "add_n", "reduce_sum"), gain, ElementsAre("layer_norm_gradient", "reduce_sum")));
  EXPECT_THAT(groups_with_elementwise(biased_residuals(bf16)), ElementsAre(ElementsAre("layer_norm_gradient", "add_n", "reduce_sum", "cast"), ElementsAre("layer_norm_gradient", "add_n", "reduce_sum", "cast"), gain, ElementsAre("layer_norm_gradient", "reduce_sum", "cast")));
  EXPECT_THAT(groups_with_elementwise(biased_residuals(bf16, 256, false)), ElementsAre(ElementsAre("layer_norm_gradient", "add_n"), ElementsAre("layer_norm_gradient", "add_n"), gain));
  for (std::int64_t width : {128, 3000}) EXPECT_THAT(groups_with_elementwise(biased_residuals(f32, width)), Not(Contains(Contains("reduce_sum"))));
  const Graph g = biased_residuals(f32);
  for (const FusionGroup& group : find_gpu_groups(g))
    if (group.kind == kWithElementwise) { EXPECT_EQ(group.kept.size(), group.members.size() == 4 ? 0u : 1u) << "what the sum alone reads stays inside"; }
}

/// Sums over other axes, of two inputs' rows, or in another role's or device's nodes stand by themselves.
TEST(KeptValues, are_not_summed_beside_over_other_axes) {
  auto behind = [](const std::function<void(Builder&, Value)>& more) {
    Builder b("net");
    const Value x = b.input("x", f32, {kBatch, 3, 256}), moments = b.input("moments", f32, {kBatch, 3});
    const Value dx = b.graph().add("layer_norm_gradient", {x, moments, moments, x}, {});
    b.output(dx * dx);
    more(b, dx);
    return groups_with_elementwise(std::move(b).build());
  };
  EXPECT_THAT(behind([](Builder& b, Value dx) { b.output(reduce_sum(dx, {.axes = {0, 1}})); }), ElementsAre(ElementsAre("layer_norm_gradient", "reduce_sum")));
  EXPECT_THAT(behind([](Builder& b, Value dx) { b.output(reduce_sum(dx, {.axes = {-2, 0}})), b.output(reduce_sum(dx, {.axes = {0, 1}})); }), ElementsAre(ElementsAre("layer_norm_gradient", "reduce_sum")));
  for (const Integers& axes : {Integers{}, {0}, {1}, {2}, {0, 2}, {0, 1, 2}})
    EXPECT_TRUE(behind([&](Builder& b, Value dx) { b.output(reduce_sum(dx, {.axes = axes})); }).empty());
  EXPECT_TRUE(behind([](Builder& b, Value dx) { b.output(reduce_max(dx, {.axes = {0, 1}})); }).empty());
  EXPECT_THAT(behind([](Builder& b, Value dx) { b.output(reduce_sum(tanh(dx), {.axes = {0, 1}})); }), ElementsAre(ElementsAre("tanh", "reduce_sum")));
}

/// Blocks of a product and a batch norm that are bent after the shortcut is added: a norm of its own, then what the block reads.
Graph bent_residuals(DType precision) {
  Builder b("net");
  auto normed = [&](Value v, const char* name) { return nn::batch_norm(matmul(v, b.variable(name, {8, 8}, {.init = "normal", .init_value = 0.7}))); };
  Value h = relu(normed(b.input("x", f32, {kBatch, 3, 8}), "in"));
  h = relu(normed(h, "first") + normed(h, "shortcut"));
  h = relu(normed(h, "second") + h);
  h = relu(normed(h, "third") + h);
  b.minimize(reduce_sum(square(matmul(h, b.variable("out", {8, 8})))), Sgd{.learning_rate = 0.01});
  Graph out = std::move(b).build();
  out.precision = precision;
  return run_passes(training_passes(), out);
}

/// The groups of gradients of batch norms, what is kept with a star.
std::vector<std::vector<std::string>> groups_of_gradients(const Graph& g) {
  std::vector<std::vector<std::string>> out;
  for (const FusionGroup& group : find_gpu_groups(g)) {
    if (std::none_of(group.members.begin(), group.members.end(), [&](NodeId id) { return g.node(id).op->name == "batch_norm_gradient"; })) continue;
    out.emplace_back();
    for (NodeId id : group.members) out.back().push_back(g.node(id).op->name + (keeps(group, id) ? "*" : ""));
  }
  return out;
}

/// Where two norms read it, the first takes it; the other, and the first norm of all, whose dy nobody else reads, stand as before.
TEST(KeptValues, are_the_slopes_of_batch_norms_that_others_read) {
  const std::vector<std::string> last = {"relu_gradient*", "batch_norm_gradient"}, inner = {"add_n", "relu_gradient*", "batch_norm_gradient"};
  for (DType t : {f32, bf16}) {
    const Graph g = bent_residuals(t);
    std::vector<std::vector<std::string>> found = groups_of_gradients(g);
    EXPECT_THAT(found, testing::UnorderedElementsAre(last, inner, inner)) << name_of(t);
    const std::vector<FusionGroup> groups = find_gpu_groups(g);
    for (const FusionGroup& group : groups)
      for (NodeId id : group.kept) {
        std::vector<NodeId> norms;
        for (NodeId r : g.readers(id))
          if (g.node(r).op->name == "batch_norm_gradient") norms.push_back(r);
        ASSERT_FALSE(norms.empty());
        EXPECT_EQ(group.members.back(), *std::min_element(norms.begin(), norms.end()));
      }
  }
  EXPECT_THAT(groups_of_gradients(training_graph(net("bent_norms"), f32)), Contains(ElementsAre("relu6_gradient*", "batch_norm_gradient"))) << "which random plans draw";
}

/// Of a tree before a batch norm's gradient; `given` is read by others, too, or asked for.
TEST(KeptValues, of_slopes_are_of_one_type_and_of_few_values) {
  auto found = [](const std::function<Value(Builder&, const std::function<Value(const char*)>&)>& tree, DType t = f32, bool fetched = false, bool twice = false) {
    Builder b("net");
    auto in = [&](const char* name) { return b.input(name, t, {kBatch, 3, 8}); };
    const Value row = b.input("row", f32, {8}), dy = tree(b, in), x = twice ? dy : in("x");
    b.output(b.graph().add("batch_norm_gradient", {x, row, {}, row, row, dy}, {}));
    b.output(fetched ? dy : softmax(is_half(dy.dtype()) ? cast(dy, f32) : dy));
    if (!fetched && is_half(dy.dtype())) b.output(matmul(dy, b.input("w", t, {8, 2})));
    return groups_of_gradients(std::move(b).build());
  };
  auto four = [](Builder&, const auto& in) { return relu(add_n({in("a"), in("b"), in("c")}) * in("d")); };
  const std::vector<std::string> whole = {"add_n", "mul", "relu*", "batch_norm_gradient"};
  EXPECT_THAT(found(four), ElementsAre(whole));
  EXPECT_THAT(found(four, bf16), ElementsAre(whole));
  EXPECT_THAT(found(four, f32, true), ElementsAre(whole));
  EXPECT_TRUE(found(four, f32, false, true).empty()) << "it is x, too";
  EXPECT_TRUE(found([](Builder&, const auto& in) { return relu(add_n({in("a"), in("b"), in("c"), in("e")}) * in("d")); }).empty());
  EXPECT_TRUE(found([](Builder&, const auto& in) { const Value d = in("d"); return relu(add_n({in("a"), in("b"), in("c")}) * d) - d; }).empty()) << "five reads";
  EXPECT_TRUE(found([](Builder& b, const auto& in) { return in("a") * b.input("gain", f32, {8}); }).empty());
  EXPECT_TRUE(found([](Builder& b, const auto&) { return cast(b.input("half", bf16, {kBatch, 3, 8}), f32); }).empty());
  EXPECT_TRUE(found([](Builder&, const auto& in) { return tanh(in("a")); }).empty()) << "kernels differ in bits";
  EXPECT_TRUE(found([](Builder& b, const auto& in) { auto on = b.device("gpu:1"); return relu(in("a")); }).empty());
}

PlacedGraph placed_keeping(const std::shared_ptr<const Graph>& graph, PlaceOptions options = {}, bool grouped = true) {
  options.kernels = chooser({{"cpu", cpu_kernels()}, {"sim", cpu_kernels()}});
  if (grouped) options.groups = find_gpu_groups;
  PlacedGraph plan = place(graph, to_strategy(Mirrored{.devices = sims(2), .towers = 4, .threads = 1}), sim_cluster(2), 7, options);
  const std::vector<std::string> objections = verify(plan);
  EXPECT_TRUE(objections.empty()) << objections.front();
  return plan;
}

std::vector<const PlanNode*> keeping_groups(const PlacedGraph& plan) {
  std::vector<const PlanNode*> out;
  for (const PlanNode& n : plan.nodes)
    if (std::any_of(n.members.begin(), n.members.end(), [](const Member& m) { return m.kept; })) out.push_back(&n);
  return out;
}

TEST(KeptValues, have_their_names_and_states_in_plans_which_files_hold) {
  for (DType t : {f32, bf16}) {
    auto graph = std::make_shared<const Graph>(biased_residuals(t));
    const PlacedGraph plan = placed_keeping(graph);
    const std::vector<const PlanNode*> groups = keeping_groups(plan);
    ASSERT_EQ(groups.size(), 3u);
    const PlanNode& n = *groups[1];  // the first has no tree behind its norm
    const std::size_t kept = 3, sum = t == f32 ? 0 : 4;
    ASSERT_EQ(n.outputs.size(), t == f32 ? 4u : 5u);
    EXPECT_EQ(plan.value(n.outputs[kept]).name, plan.graph->node(n.members[1].node).name);
    EXPECT_EQ(plan.value(n.outputs[kept]).state, rows(0));
    EXPECT_EQ(plan.value(n.outputs[sum]).name, plan.graph->node(n.members[2].node).name);
    EXPECT_TRUE(plan.value(n.outputs[sum]).state.is_partial());
    EXPECT_EQ(n.scope, Scope::tower);
    expect_same_from_file(plan);
  }
}

TEST(KeptValues, of_slopes_are_given_beside_dx_in_plans_which_files_hold) {
  for (DType t : {f32, bf16}) {
    auto graph = std::make_shared<const Graph>(bent_residuals(t));
    const PlacedGraph plan = placed_keeping(graph);
    const std::vector<const PlanNode*> groups = keeping_groups(plan);
    ASSERT_EQ(groups.size(), 3u);
    for (const PlanNode* n : groups) {
      ASSERT_EQ(n->outputs.size(), 4u);
      EXPECT_EQ(plan.value(n->outputs[3]).name, plan.graph->node(n->members[n->members.size() - 2].node).name);
      EXPECT_EQ(plan.value(n->outputs[3]).state, rows(0));
      EXPECT_TRUE(plan.value(n->outputs[1]).state.is_partial());
      // Over what the tree reads, never over x; dx over x alone.
      const auto of_tree = static_cast<int>(n->inputs.size()) - 5;
      for (auto [k, i] : in_place_pairs(plan, *n)) EXPECT_TRUE(k == 3 ? i < of_tree : k == 0 && i == of_tree) << k << " over " << i;
      EXPECT_FALSE(in_place_pairs(plan, *n).empty());
      const double each = static_cast<double>(local_type(plan.value(n->outputs[0]), plan.share(0)).bytes());
      EXPECT_EQ(work_of(plan, *n, plan.share(0), 1).bytes, (of_tree + 3) * each + 5 * 8 * 4) << "what the tree reads, x, dy and dx, and five rows of f32";
    }
    EXPECT_EQ(keeping_groups(placed_keeping(graph, {.fetches = {{"asked", {groups[0]->members[0].node, 0}}}})).size(), groups[0]->members.size() == 2 ? 3u : 2u);
    expect_same_from_file(plan);
  }
}

/// What is kept is the group's for whoever asks; what stays inside is not, and then the members stand alone.
TEST(KeptValues, are_the_groups_for_whoever_asks) {
  auto graph = std::make_shared<const Graph>(biased_residuals(f32));
  const PlacedGraph plan = placed_keeping(graph);
  const PlanNode& n = *keeping_groups(plan)[1];
  auto asking = [&](std::size_t member) { return keeping_groups(placed_keeping(graph, {.fetches = {{"asked", {n.members[member].node, 0}}}})).size(); };
  EXPECT_EQ(asking(0), 2u);
  EXPECT_EQ(asking(1), 3u);
  EXPECT_EQ(asking(2), 3u);
}

/// A member that reads what others make of a kept value would wait for its own group.
TEST(KeptValues, do_not_come_back) {
  auto taken = [](bool crossed) {
    Builder b("net");
    const Value x = b.input("x", f32, {kBatch, 8}), first = relu(x), other = softmax(crossed ? first : x), last = first * other;
    b.metric("last", last), b.metric("first", softmax(first));
    auto graph = std::make_shared<const Graph>(std::move(b).build());
    PlaceOptions options{.fetches = fetches_of(*graph)};
    options.groups = [&](const Graph&) { return std::vector<FusionGroup>{{kElementwise, {first.id.node, last.id.node}, {first.id.node}}}; };
    return keeping_groups(placed_keeping(graph, std::move(options), false)).size();
  };
  EXPECT_EQ(taken(false), 1u);
  EXPECT_EQ(taken(true), 0u);
}

TEST(KeptValues, have_the_bits_of_their_members_in_turn_and_in_the_reference) {
  for (DType t : {f32, bf16}) {
    const Graph g = biased_residuals(t);
    for (const FusionGroup& group : find_gpu_groups(g)) {
      if (group.kept.empty()) continue;
      const DrawnGroup d(g, group, 5);
      const KernelTable::Choice choice = cpu_kernels().choose(d.request);
      ASSERT_EQ(choice.name, "members_in_turn");
      EXPECT_TRUE(choice.support.in_place);
      auto kernel = cpu_kernels().prepare(choice.name, d.request, {choice.support.scratch_bytes, true});
      const std::vector<HostTensor> want = d.one_by_one(cpu_kernels()), reference = d.run(*cpu_kernels().prepare(kReferenceKernel, d.request), 0);
      EXPECT_EQ(d.run(*kernel, choice.support.scratch_bytes), want);
      const auto made = static_cast<std::size_t>(d.request.places[1][0]);
      for (std::size_t i = 3; i < d.inputs.size(); ++i)
        if (d.inputs[i].type() == want[made].type()) { EXPECT_TRUE(d.run(*kernel, choice.support.scratch_bytes, 0, static_cast<int>(i), made) == want) << "over input " << i; }
      for (std::size_t k = 0; k < want.size(); ++k) EXPECT_LE(distance(reference[k], want[k]), is_half(want[k].dtype()) ? 0x1p-4 : 1e-3) << k;
    }
  }
}

/// Kernels of fixed chains write the last value alone.
TEST(KeptValues, are_given_by_kernels_that_say_so) {
  Builder b("net");
  const Value y = conv2d(b.input("x", f32, {kBatch, 5, 5, 3}), b.input("filter", f32, {3, 3, 3, 4})), sum = y + b.input("bias", f32, {4});
  b.output(relu(sum)), b.output(y);
  const Graph g = std::move(b).build();
  FusionGroup group = find_cpu_groups(g).at(0);
  auto by = [&] { return cpu_kernels().choose(DrawnGroup(g, group, 2).request).name; };
  EXPECT_EQ(by(), "onednn_conv2d_bias_relu");
  group.kept = {y.id.node};
  ASSERT_EQ(by(), kReferenceKernel);
  const DrawnGroup d(g, group, 2);
  const std::vector<HostTensor> made = d.run(*cpu_kernels().prepare(kReferenceKernel, d.request), 0), want = d.one_by_one(cpu_kernels());
  for (std::size_t k = 0; k < want.size(); ++k) EXPECT_LE(distance(made[k], want[k]), 1e-4) << k;
}

/// Of other kinds a sum may be read inside; and the last member is nobody's to keep.
TEST(KeptValues, are_no_matter_of_other_kinds_nor_of_the_last) {
  Builder b("net");
  const Value x = b.input("x", f32, {kBatch, 8}), sum = reduce_sum(x, {.axes = {1}, .keep = true}), last = x / sum;
  b.metric("last", last);
  auto graph = std::make_shared<const Graph>(std::move(b).build());
  const TowerGraph plan = expand(graph, {.towers = 2, .batch = 4, .fetches = fetches_of(*graph), .groups = {{"mine", {sum.id.node, last.id.node}, {last.id.node}}}});
  const auto fused = std::find_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.op == kFused; });
  ASSERT_NE(fused, plan.nodes.end());
  EXPECT_TRUE(std::none_of(fused->members.begin(), fused->members.end(), [](const Member& m) { return m.kept; }));
}

TEST(KeptValues, are_refused_where_the_file_says_otherwise) {
  auto graph = std::make_shared<const Graph>(biased_residuals(bf16));
  const std::string text = write_plan(placed_keeping(graph));
  auto with = [&](const std::string& from, const std::string& to) {
    std::string edited = text;
    const std::size_t at = edited.find(from);
    EXPECT_NE(at, edited.npos) << from;
    edited.replace(at, from.size(), to);
    return message_of([&] {
      const PlacedGraph plan = read_plan(edited, "plan.json", graph->shared_ops());
      if (const std::vector<std::string> objections = verify(plan); !objections.empty()) throw UserError(objections.front());
    });
  };
  EXPECT_THAT(with("\"kept\": true", "\"kept\": false"), testing::HasSubstr("makes 5 values, but the graph's nodes 4"));
  EXPECT_THAT(with("\"kept\": true", "\"kept\": 1"), testing::HasSubstr("plan.json"));
  std::string last = text.substr(text.rfind("\"op\": \"cast\", \"inputs\"", text.rfind("\"kept\": true") + 400));
  last = last.substr(0, last.find("\"at\""));
  EXPECT_THAT(with(last + "\"at\"", last + "\"kept\": true, \"at\""), testing::HasSubstr("the last member is the fused node's own value"));
}

}  // namespace
}  // namespace belfry::test
