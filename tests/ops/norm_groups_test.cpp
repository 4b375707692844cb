// A batch norm and the elementwise nodes behind it or before its gradient as one node: found, taken, and of the bits of the members.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
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

#include "op_case.h"
#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kRows = 5;

std::vector<std::vector<std::string>> norm_groups_of(const Graph& g) {
  std::vector<std::vector<std::string>> out;
  for (const FusionGroup& group : find_gpu_groups(g)) {
    if (group.kind != kWithElementwise) continue;
    out.emplace_back();
    for (NodeId id : group.members) out.back().push_back(g.node(id).op->name);
  }
  return out;
}

/// One norm with a relu behind it, one whose sum with a shortcut is bent.
Graph net(DType precision, std::int64_t channels, const std::function<void(Builder&, Value, Value)>& more = {}) {
  const DType t = precision == f64 ? f64 : f32;
  Builder b("net");
  auto product = [&](Value v, const char* name) { return matmul(v, b.variable(name, {channels, channels}, {.dtype = t, .init = "normal", .init_value = 0.7})); };
  Value x = b.input("x", t, {kBatch, 3, channels}), h = relu(nn::batch_norm(product(x, "v")));
  Value z = nn::batch_norm(product(h, "w")), end = relu6(z + product(x, "u"));
  if (more) more(b, z, end);
  b.minimize(reduce_sum(square(end)), Sgd{.learning_rate = 0.01});
  Graph out = std::move(b).build();
  out.precision = t == f64 ? f32 : precision;
  return run_passes(training_passes(), out);
}

TEST(NormGroups, are_norms_with_what_alone_reads_them_and_gradients_with_what_they_alone_read) {
  EXPECT_THAT(norm_groups_of(net(f32, 8)), testing::UnorderedElementsAre(ElementsAre("batch_norm", "relu"), ElementsAre("batch_norm", "add", "relu6"), ElementsAre("relu_gradient", "batch_norm_gradient")));
}

TEST(NormGroups, are_none_where_others_want_what_stays_inside_or_a_tree_reads_other_shapes) {
  EXPECT_EQ(norm_groups_of(net(f32, 8, [](Builder& b, Value z, Value) { b.output(z); })).size(), 2u);
  EXPECT_EQ(norm_groups_of(net(f32, 8, [](Builder& b, Value z, Value) { b.output(identity(z)); })).size(), 2u);
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 8});
  b.output(relu(nn::batch_norm(x)) * b.variable("row", {8}));
  b.output(tanh(nn::batch_norm(x)));  // counts by its kernel in the arithmetic: apart and in the group by another
  EXPECT_TRUE(norm_groups_of(b.graph()).empty());
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
  const std::string text = write_plan(plan);
  const PlacedGraph again = read_plan(text, "plan.json", graph->shared_ops());
  EXPECT_TRUE(write_plan(again) == text);
  EXPECT_TRUE(verify(again).empty());
  EXPECT_EQ(arithmetic_hash(again), plan.arithmetic_hash);
  PlaceOptions options;
  options.groups = [&](const Graph& g) { return groups_of(again, g); };
  options.kernels = chooser({{"cpu", cpu_kernels()}, {"sim", cpu_kernels()}});
  EXPECT_TRUE(write_plan(place(again.graph, placement_of(again), again.cluster, options)) == text);
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

/// A group with drawn values for what it reads from outside, and its members' own kernels on the same.
struct Drawn {
  Drawn(const Graph& graph, const FusionGroup& of, std::int64_t rows) : g(graph), group(of), share{0, rows, rows, 1} {
    std::mt19937_64 rng(7);
    request.op = group.kind;
    request.attributes = &attributes;
    request.share = share;
    for (auto m = group.members.begin(); m != group.members.end(); ++m)
      for (std::size_t i = 0; i < g.node(*m).inputs.size(); ++i) {
        const ValueId v = g.node(*m).inputs[i];
        if (std::find(group.members.begin(), m, v.node) != m) continue;
        const TensorType& t = g.type(v);
        const bool shape_alone = reads_shape_only(g.node(*m), i);
        inputs.push_back(shape_alone ? HostTensor(f32, {0}) : draw({t, v.output == 2 ? 0.5 : -2, 2}, rows, false, rng));
        request.inputs.push_back(inputs.back().type());
      }
    for (ValueId v : values_of(g, group.members)) {
      request.outputs.push_back(local_type(g.type(v), rows));
      request.output_types.push_back(g.type(v));
      request.wanted.push_back(true);
    }
    describe_members(g, group.members, request);
  }

  std::vector<HostTensor> run(Prepared& kernel, std::int64_t scratch_bytes, std::size_t past = 0, int over = -1) const {
    std::vector<HostTensor> out;
    std::vector<std::vector<std::byte, AlignedAllocator<std::byte>>> memory;
    auto at = [&](const HostTensor& t) { return memory.emplace_back(t.bytes().size() + 32).data() + past * size_of(t.dtype()); };
    Arguments a;
    for (const HostTensor& t : inputs) {
      std::byte* to = at(t);
      std::copy(t.bytes().begin(), t.bytes().end(), to);
      a.inputs.push_back(t.elements() ? to : nullptr);
    }
    for (const LocalType& t : request.outputs) out.emplace_back(t.dtype, t.shape), a.outputs.push_back(at(out.back()));
    HostTensor scratch(u8, {scratch_bytes});
    a.scratch = scratch.raw();
    if (over >= 0) a.outputs[0] = const_cast<std::byte*>(a.inputs[static_cast<std::size_t>(over)]);
    kernel.launch(a);
    for (std::size_t k = 0; k < out.size(); ++k) std::copy_n(a.outputs[k], out[k].bytes().size(), out[k].raw());
    return out;
  }

  std::vector<HostTensor> one_by_one(const KernelTable& table, const std::function<void()>& build) const {
    std::map<ValueId, HostTensor> made;
    std::size_t next = 0;
    for (NodeId id : group.members) {
      const Node& n = g.node(id);
      KernelRequest r;
      r.op = n.op->name;
      r.def = n.op;
      r.attributes = &n.attributes;
      r.share = share;
      std::vector<HostTensor> in, out;
      for (ValueId v : n.inputs) in.push_back(made.contains(v) ? made.at(v) : inputs.at(next++));
      Arguments a;
      for (HostTensor& t : in) r.inputs.push_back(t.type()), a.inputs.push_back(t.elements() ? t.raw() : nullptr);
      for (const TensorType& t : n.types) r.outputs.push_back(local_type(t, share.rows)), r.wanted.push_back(true), out.emplace_back(r.outputs.back().dtype, r.outputs.back().shape);
      r.output_types = n.types;
      for (HostTensor& t : out) a.outputs.push_back(t.raw());
      const auto choice = table.choose(r);
      HostTensor scratch(u8, {choice.support.scratch_bytes});
      a.scratch = scratch.raw();
      auto kernel = table.prepare(choice.name, r, {choice.support.scratch_bytes, false});
      if (build) build();
      kernel->launch(a);
      for (std::size_t k = 0; k < out.size(); ++k) made.emplace(ValueId{id, static_cast<std::int32_t>(k)}, std::move(out[k]));
    }
    std::vector<HostTensor> out;
    for (ValueId v : values_of(g, group.members)) out.push_back(made.at(v));
    return out;
  }

  const Graph& g;
  const FusionGroup& group;
  Share share;
  KernelRequest request;
  Attributes attributes;
  std::vector<HostTensor> inputs;
};

void expect_bits(DType precision, std::int64_t channels, std::int64_t rows, const KernelTable& table, const std::string& by, const std::function<void()>& build = {}) {
  const Graph g = net(precision, channels);
  int met = 0, over_inputs = 0;
  for (const FusionGroup& group : find_gpu_groups(g)) {
    if (group.kind != kWithElementwise) continue;
    const Drawn d(g, group, rows);
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
      if (const bool of_tree = norm_first ? i >= 5 : i < d.inputs.size() - 4; of_tree && d.inputs[i].type() == want[0].type()) {
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
/// In packs and one by one, in one block and in several.
TEST(NormGroups, have_the_bits_of_their_members_in_generated_kernels) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  for (DType t : {f32, f64, f16, bf16})
    for (auto [channels, rows] : {std::pair<std::int64_t, std::int64_t>{8, kRows}, {7, kRows}, {16, 700}}) expect_bits(t, channels, rows, table, "nvrtc_batch_norm", [&] { host->build(); });
}

/// What a hand may write into a plan is refused, or computed by its members in turn.
TEST(NormGroups, of_other_members_have_no_kernel_of_their_own) {
  const KernelTable table = generated_kernels(std::make_shared<HostGpu>());
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 8}), row = b.variable("row", {8});
  b.output(relu(nn::batch_norm(x) * row));
  b.output(tanh(softmax(x)));
  const Graph& g = b.graph();
  auto asked = [&](std::vector<std::string> names) {
    FusionGroup group{kWithElementwise, {}};
    for (const std::string& name : names) group.members.push_back(g.find_node(name));
    return table.choose(Drawn(g, group, kRows).request).name;
  };
  EXPECT_EQ(asked({"batch_norm/batch_norm", "mul", "relu"}), kReferenceKernel);
  EXPECT_EQ(asked({"softmax", "tanh"}), kReferenceKernel);
}
#endif

}  // namespace
}  // namespace belfry::test
