// The convolutional net with the CPU's kernels: what runs, and that devices change no bit.
#include <gtest/gtest.h>

#include <set>

#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/ops/cpu_kernels.h>

#include "all_groups.h"
#include "plans.h"

namespace belfry::test {
namespace {

const KernelTables& tables() {
  static const KernelTables all = {{"cpu", cpu_kernels()}};
  return all;
}

/// 28 x 28: conv 3 x 3 of 32, pool, dense 10, by Adam; what a first net on digits looks like.
Graph digits() {
  Builder b("digits");
  Value x = b.input("image", f32, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  auto variable = [&](const char* name, Shape shape, const char* init) { return b.variable(name, std::move(shape), {.init = init}); };
  Value h = relu(conv2d(x, variable("conv/w", {3, 3, 1, 32}, "glorot_uniform")) + variable("conv/b", {32}, "zeros"));
  Value p = reshape(max_pool2d(h), {kBatch, 13 * 13 * 32});
  Value logits = matmul(p, variable("fc/w", {13 * 13 * 32, 10}, "glorot_uniform")) + variable("fc/b", {10}, "zeros");
  Value loss = reduce_mean(sparse_softmax_cross_entropy(logits, label));
  b.metric("loss", loss);
  b.metric("accuracy", reduce_mean(cast(equal(argmax(logits), label), f32)));
  b.minimize(loss, Adam{});
  return run_passes(training_passes(), std::move(b).build());
}

PlacedGraph placed(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, int devices, std::int64_t batch) {
  return place(graph, strategy, sim_cluster(devices), batch, {.fetches = fetches_of(*graph), .kernels = chooser(tables()), .groups = all_groups});
}

struct Ran {
  Tensors state, fetched;
};

Ran run(PlacedGraph placed, const Graph& graph, int steps) {
  auto plan = std::make_shared<const PlacedGraph>(std::move(placed));
  auto objections = verify(*plan);
  EXPECT_TRUE(objections.empty()) << (objections.empty() ? "" : objections[0]);
  Program program(plan, tables());
  Runner runner(program);
  Ran out;
  for (const auto& [name, value] : state_for(graph)) program.set_state(name, value);
  for (int k = 0; k < steps; ++k) {
    Tensors feeds = feeds_for(graph, plan->batch, static_cast<std::uint64_t>(k));
    Outcome o = runner.run(views(feeds));
    if (o.error) std::rethrow_exception(o.error);
    out.fetched = o.fetched;
  }
  for (const auto& [name, value] : state_for(graph)) out.state.emplace(name, program.state(name));
  return out;
}

TEST(ConvNet, no_op_of_it_falls_back_to_the_reference) {
  // adam_rate: one scalar, whose reference is as good as a kernel.
  const std::set<std::string> allowed = {"adam_rate"};
  auto graph = std::make_shared<const Graph>(digits());
  PlacedGraph plan = placed(graph, to_strategy(Towers{.devices = sims(2), .towers = 2, .threads = 1}), 2, 32);
  std::set<std::string> kernels;
  for (const PlanNode& n : plan.nodes)
    for (const auto* variants : {&n.by_class, &n.by_group})
      for (const Variant& v : *variants) {
        kernels.insert(v.kernel);
        bool scalars_of_integers = n.def && plan.value(n.outputs[0]).type.shape.empty() && !is_float(plan.value(n.outputs[0]).type.dtype);
        EXPECT_TRUE(scalars_of_integers || allowed.contains(n.op) || v.kernel != "reference") << n.op << " '" << n.name << "'";
      }
  for (const char* wanted : {"onednn_conv2d", "onednn_conv2d_bias_relu", "onednn_matmul", "nhwc_max_pool2d", "row_cross_entropy", "block_reduce_sum", "simd_adam"}) EXPECT_TRUE(kernels.contains(wanted)) << wanted;
}

// ---------------------------------------------------------------- what kernels are given

std::string refusal(const PlacedGraph& plan) {
  try {
    Program program(std::make_shared<const PlacedGraph>(plan), tables());
    for (int t = 0; t < static_cast<int>(program.threads().size()); ++t) program.prepare_thread(t);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

PlanNode& with_kernel(PlacedGraph& plan, const std::string& kernel) {
  for (PlanNode& n : plan.nodes)
    if (!n.by_class.empty() && n.by_class[0].kernel == kernel) return n;
  throw InternalError("the plan has no " + kernel);
}

TEST(ConvNet, a_kernel_refuses_less_scratch_than_it_wants) {
  auto graph = std::make_shared<const Graph>(digits());
  const PlacedGraph plan = placed(graph, to_strategy(Single{.device = sims(1)[0], .threads = 1}), 1, 8);
  ASSERT_EQ(refusal(plan), "");
  const auto wants = [](const PlanNode& n) { return !n.by_class.empty() && n.by_class[0].kernel.starts_with("onednn_") && n.by_class[0].scratch_bytes > 64; };  // which does is the processor's
  for (std::int64_t bytes : {0, 64}) {
    PlacedGraph less = plan;
    const auto n = std::find_if(less.nodes.begin(), less.nodes.end(), wants);
    ASSERT_NE(n, less.nodes.end());
    n->by_class[0].scratch_bytes = bytes;
    EXPECT_NE(refusal(less).find("'" + n->by_class[0].kernel + "', which needs "), std::string::npos) << refusal(less);
    EXPECT_NE(refusal(less).find("bytes of scratch, but has " + std::to_string(bytes) + "; derive the plan anew"), std::string::npos) << refusal(less);
  }
}

TEST(ConvNet, a_kernel_that_cannot_write_over_its_input_refuses_to) {
  auto graph = std::make_shared<const Graph>(digits());
  PlacedGraph plan = placed(graph, to_strategy(Single{.device = sims(1)[0], .threads = 1}), 1, 8);
  PlanNode& n = with_kernel(plan, "onednn_matmul");
  n.by_class[0].outputs[0] = plan.maker(n.inputs[0]).by_class[0].outputs[0];
  EXPECT_NE(refusal(plan).find("'onednn_matmul', which cannot write over its inputs"), std::string::npos) << refusal(plan);
}

TEST(ConvNet, a_fused_kernel_refuses_members_that_it_does_not_compute) {
  auto graph = std::make_shared<const Graph>(digits());
  PlacedGraph plan = placed(graph, to_strategy(Single{.device = sims(1)[0], .threads = 1}), 1, 8);
  PlanNode& n = with_kernel(plan, "onednn_conv2d_bias_relu");
  // The same graph, but for the op of one member.
  auto edited = std::make_shared<Graph>(*graph);
  edited->edit(n.members[2].node).op = graph->ops().find("sigmoid");
  plan.graph = edited;
  EXPECT_NE(refusal(plan).find("'onednn_conv2d_bias_relu', which refuses: its members are conv2d, add, relu, each reading the one before"), std::string::npos) << refusal(plan);
  // Its reference computes what the members say.
  n.by_class[0].kernel = "reference";
  EXPECT_EQ(refusal(plan), "");
}

TEST(ConvNet, devices_and_strategies_change_no_bit) {
  for (const Graph& g : {training_graph(net("conv"), f32), digits()}) {
    auto graph = std::make_shared<const Graph>(g);
    std::optional<Ran> first;
    for (int n : {1, 2, 4})
      for (const NamedStrategy& s : strategies(4, n)) {
        SCOPED_TRACE(graph->name + " " + s.name + " on " + std::to_string(n));
        Ran got = run(placed(graph, s.strategy, n, 7), *graph, 3);
        if (!first) first = std::move(got);
        else {
          EXPECT_TRUE(same_bits(got.state, first->state));
          EXPECT_TRUE(same_bits(got.fetched, first->fetched));
        }
      }
  }
}

TEST(ConvNet, its_kernels_agree_with_the_references) {
  auto graph = std::make_shared<const Graph>(training_graph(net("conv"), f32));
  for (int T : {1, 2, 3}) {
    Ran got = run(placed(graph, to_strategy(Towers{.devices = sims(1), .towers = T, .threads = 2}), 1, 7), *graph, 1);
    TowerGraph tg = expand(graph, {.towers = T, .batch = 7, .threads = 2, .fetches = fetches_of(*graph)});
    Result want = run_towers(tg, feeds_for(*graph, 7), state_for(*graph));
    EXPECT_LT(difference(got.fetched, want.fetched), 1e-3) << T;
    EXPECT_LT(difference(got.state, want.state), 1e-3) << T;
  }
}

TEST(ConvNet, another_number_of_towers_is_another_arithmetic) {
  auto graph = std::make_shared<const Graph>(digits());
  auto strategy = [](int T) { return to_strategy(Towers{.devices = sims(1), .towers = T, .threads = 1}); };
  EXPECT_NE(placed(graph, strategy(1), 1, 8).arithmetic_hash, placed(graph, strategy(2), 1, 8).arithmetic_hash);
  Ran one = run(placed(graph, strategy(1), 1, 8), *graph, 2), two = run(placed(graph, strategy(2), 1, 8), *graph, 2);
  EXPECT_FALSE(same_bits(one.state, two.state));
  EXPECT_LT(difference(one.fetched, two.fetched), 1e-2);
}

}  // namespace
}  // namespace belfry::test
