// Every strategy on GPUs, on the fake driver with the CPU's kernels: it gives the CPU's bits, or where it promises none comes near.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/loops.h>
#include <belfry/graph/plan/small_steps.h>
#include <belfry/ops/all_ops.h>

#include "gpu_plans.h"
#include "joint_on_stream.h"
#include "layouts.h"
#include "op_case.h"
#include "says.h"

namespace belfry::test {
namespace {

bool has_ring(const PlacedGraph& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.sum == SumWay::ring; });
}

TEST_F(GpuPlans, give_the_cpus_bits_with_every_strategy) {
  environment.set("FAKE_CUDA_GPUS", "2");
  environment.set("FAKE_CUDA_WORKS", "1");
  int seed = 0;
  const int joint = JointOnStream::joint_launches;
  std::vector<std::pair<std::string, DType>> all_nets = {{"attention", bf16}, {"batch_norm", f16}, {"embedding", bf16}};
  for (const std::string& name : names_of_nets()) all_nets.emplace_back(name, f32);
  for (const auto& [name, precision] : all_nets) {
    auto graph = std::make_shared<const Graph>(without_requests(trained_in(name, precision)));
    // An op is left out here and there: it runs on the host then.
    const KernelTables all = tables(), some = tables({"matmul", "relu", "softmax_cross_entropy"});
    auto single = placed(graph, to_strategy(Single{.device = cpu(0), .towers = 4, .threads = 1}), "cpu:0", 7, all);
    const Tensors want = train(graph, single, all);
    for (const Layout& l : layouts("gpu:0,gpu:1", "gpu:0/0,gpu:0/1,gpu:1/0,gpu:1/1", 4)) {
      const bool apart = ++seed % 4 > 1;
      environment.set("FAKE_CUDA_PEER", apart ? "0" : "1");
      start(seed);
      const KernelTables& kernels = seed % 3 ? all : some;
      told = {seed % 2 == 1, false, true};
      peers.clear();  // nothing is known of them, they read each other's memory, or they do not
      const bool ring = apart && has_ring(*placed(graph, l.strategy, l.devices, 7, kernels));
      if (seed % 4 == 1) peers = {parse_devices("gpu:0-1")};
      if (apart) peers = {parse_devices("gpu:0"), parse_devices("gpu:1")};
      if (ring) {
        EXPECT_TRUE(says([&] { placed(graph, l.strategy, l.devices, 7, kernels); }, {"round a ring", "do not read each other's memory"})) << name << ", " << l.name;
        continue;
      }
      auto plan = placed(graph, l.strategy, l.devices, 7, kernels);
      const Tensors got = train(graph, plan, kernels);
      for (const auto& [value, tensor] : want) ASSERT_TRUE(l.bits ? got.at(value) == tensor : distance(got.at(value), tensor) <= (precision == f32 ? 1e-5 : 0x1p-6)) << name << ", " << l.name << ", seed " << seed << ": '" << value << "' differs from the CPU's";
    }
  }
  EXPECT_GT(JointOnStream::joint_launches, joint + 100);  // of the small steps that nets have
}

/// How many launches a plan's small steps save, as far as it tells.
std::ptrdiff_t saved(const PlacedGraph& plan) {
  const std::vector<int> joint = joint_steps(plan);
  const std::set<int> numbers(joint.begin(), joint.end());
  return std::ssize(joint) - std::count(joint.begin(), joint.end(), -1) - (std::ssize(numbers) - 1);
}

/// Generated kernels: a launch of many gives what each of them gives, with a gate too, and fewer are put on the streams.
TEST_F(GpuPlans, make_small_updates_in_few_launches) {
  environment.set("FAKE_CUDA_GPUS", "2");
  environment.set("FAKE_CUDA_WORKS", "1");
  int seed = 40;
  for (auto [name, precision] : {std::pair{"batch_norm", f32}, {"attention", f32}, {"decay", f16}}) {
    auto graph = std::make_shared<const Graph>(without_requests(trained_in(name, precision)));
    auto host = std::make_shared<HostGpu>();
    const std::set<std::string> updates = {"momentum", "where"};
    const KernelTables generated = generated_tables(host);
    KernelTables all = tables(updates);
    for (const Kernel& k : generated.at("gpu").all())
      if (updates.contains(k.op)) all.at("gpu").add(k);
    all.at("gpu").finish = generated.at("gpu").finish;
    for (const Strategy& s : {to_strategy(Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}), to_strategy(Mirrored{.devices = parse_devices("gpu:0-1"), .towers = 2, .threads = 1})}) {
      auto plan = placed(graph, s, "gpu:0-1", 6, all);
      const std::vector<Small> small = small_steps(*plan);
      Tensors got[2];
      int calls[2];
      for (bool joint : {false, true}) {
        start(++seed);
        const int before = JointOnStream::joint_launches;
        jointly = joint;
        got[joint] = train(graph, plan, all, [&] { host->build(); });
        calls[joint] = function<fake_cuda::Calls>("fake_cuda_calls")("cuLaunchHostFunc");
        EXPECT_EQ(JointOnStream::joint_launches > before, joint) << name;
      }
      EXPECT_EQ(got[0], got[1]) << name << ", " << s.name;
      EXPECT_LE(calls[1], calls[0] - std::count(small.begin(), small.end(), Small::update) / 2) << name << ", " << s.name;
    }
  }
}

/// Of a net and of what each step changes besides.
Graph with_a_counter(Graph graph) {
  const Node& some = graph.node(graph.variables().back());
  const Value counter = graph.add(kVariable, {}, Attributes(some.attributes), "counter");
  graph.updates[counter.id.node] = graph.add("neg", {counter}).id;
  return graph;
}

/// Casts of weights, reshapes of filters and the scales of norms: as few launches as the plan tells, and their texts are asked for by what is recorded alone.
/// Where no step changes a variable they are made once, with the same bits.
TEST_F(GpuPlans, make_values_of_variables_in_few_launches) {
  environment.set("FAKE_CUDA_GPUS", "2");
  environment.set("FAKE_CUDA_WORKS", "1");
  int seed = 60;
  for (DType precision : {f32, bf16}) {
    Graph net = net_named("mobilenet_v2").build(std::make_shared<const OpSet>(standard_ops()), {{"alpha", 0.35}, {"image", 32}});
    net.precision = precision;
    std::vector<std::string> outputs;
    for (ValueId v : net.outputs) outputs.push_back(net.name_of(v));
    Graph served = run_passes(inference_passes(), for_serving(net, outputs));
    served.metrics.emplace("served", *served.find(outputs.at(0)));  // what is fetched here
    auto unchanged = std::make_shared<const Graph>(served), graph = std::make_shared<const Graph>(with_a_counter(std::move(served)));
    auto host = std::make_shared<HostGpu>();
    const std::set<std::string> ops = {"cast", "reshape", "mul", kElementwise};
    const KernelTables generated = generated_tables(host);
    KernelTables all = tables(ops);
    for (const Kernel& k : generated.at("gpu").all())
      if (ops.contains(k.op)) all.at("gpu").add(k);
    all.at("gpu").finish = generated.at("gpu").finish;
    auto plan = placed(graph, to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), "gpu:0", 1, all);
    EXPECT_GT(saved(*plan), precision == f32 ? 115 : 165);
    Tensors got[3];
    std::ptrdiff_t calls[3];
    for (int way : {0, 1, 2}) {  // one by one; together; together where it was recorded, which nothing is
      start(++seed);
      const int before = JointOnStream::joint_launches, prepared = JointOnStream::prepared;
      jointly = way > 0, recorded = way < 2;
      got[way] = train(graph, plan, all, [&] { host->build(); });
      calls[way] = function<fake_cuda::Calls>("fake_cuda_calls")("cuLaunchHostFunc");
      EXPECT_EQ(JointOnStream::joint_launches > before, way == 1);
      EXPECT_EQ(JointOnStream::prepared > prepared, way == 1);
      EXPECT_EQ(got[way], got[0]) << name_of(precision);
    }
    EXPECT_EQ(calls[0] - calls[1], saved(*plan)) << name_of(precision);
    auto once = placed(unchanged, to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), "gpu:0", 1, all);
    EXPECT_EQ(saved(*once), 0);
    EXPECT_GT(std::count_if(once->nodes.begin(), once->nodes.end(), [](const PlanNode& n) { return n.once; }), precision == f32 ? 115 : 165);
    for (bool graphs : {true, false}) {
      start(++seed);
      recorded = graphs;
      EXPECT_EQ(train(unchanged, once, all, [&] { host->build(); }).at("served"), got[0].at("served")) << name_of(precision);
    }
  }
}

/// Layers with a norm over all gradients, and a loss that more steps make smaller.
Graph trained_by_loops() {
  Builder b("trained_by_loops");
  Value h = tanh(nn::dense(b.input("x", f32, {kBatch, 6}), {.units = 8, .name = "in"}));
  b.minimize(identity(mean(square(nn::dense(h, {.units = 5, .name = "out"}) - b.input("y", f32, {kBatch, 5}))), "loss"), Momentum{.learning_rate = 0.05}, {.clip_norm = 3.0});
  return std::move(b).build();
}

/// Every row twice.
Tensors doubled(const Tensors& rows) {
  Tensors out;
  for (const auto& [name, t] : rows) {
    Extents shape = t.shape();
    shape[0] *= 2;
    HostTensor both(t.dtype(), shape);
    for (std::size_t k : {0u, 1u}) std::memcpy(both.raw() + k * t.bytes().size(), t.raw(), t.bytes().size());
    out.emplace(name, std::move(both));
  }
  return out;
}

/// Whichever two of three workers come first: all mini-batches are the same, and the mean of two gradients is that of two towers.
TEST_F(GpuSessions, train_by_loops_with_backup_workers) {
  start(31);
  const Graph graph = trained_by_loops();
  const Tensors same = feeds_for(graph, 4, 3), twice = doubled(same);
  Session loops(graph, ParameterServer{.devices = parse_devices("gpu:0-1"), .backup = 1, .towers = 3, .threads = 1}, options());
  Session two(graph, Single{.towers = 2, .threads = 1});
  TrainingLoops training(loops, {.rows = 4, .fetches = {"loss"}});
  std::int64_t steps = 0;
  training.run([&] { return std::optional(same); }, 6, [&](const std::vector<Applied>& gradients) { steps += gradients.size() == 2; });
  EXPECT_EQ(steps, 6);
  for (int k = 0; k < 6; ++k) two.step(twice);
  EXPECT_EQ(loops.state(), two.state());
}

/// By the name of an inner member it goes where the rule says; the arithmetic, and so the hash, stays.
TEST_F(GpuSessions, leave_out_trees_of_which_a_rule_names_an_inner_member) {
  start(33);
  Builder b("tree");
  Value x = b.input("x", f32, {kBatch, 4});
  b.output(square(relu(x) + x));
  const Graph graph = std::move(b).build();
  auto trees = [](const PlacedGraph& plan) { return std::count_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& n) { return is_tree(plan, n); }); };
  SessionOptions rules = options();
  const Single strategy{.device = parse_device("gpu:0"), .threads = 1};
  Session whole(graph, strategy, options());
  const PlacedGraph plan = whole.plan(3, Mode::run);
  EXPECT_EQ(trees(plan), 1);
  EXPECT_EQ(whole.plan(3, Mode::run, {"add", "square"}).arithmetic_hash, plan.arithmetic_hash);  // a member stands beside it, too
  for (auto [match, left] : {std::pair("add", 0), {"square", 1}, {"**", 1}}) {
    rules.rules = {{match, {cpu(0)}, "moved"}};
    Session moved(graph, strategy, rules);
    const PlacedGraph other = moved.plan(3, Mode::run);
    EXPECT_EQ(trees(other), left) << match;
    EXPECT_EQ(other.arithmetic_hash, plan.arithmetic_hash) << match;
    EXPECT_EQ(moved.run(feeds_for(graph, 3))["square"], whole.run(feeds_for(graph, 3))["square"]) << match;
    // The plan of a session keeps what it has: its decisions name all members.
    SessionOptions none = options();
    EXPECT_EQ(Session::placed_anew(std::make_shared<const PlacedGraph>(plan), rules).plan(3, Mode::run).arithmetic_hash, plan.arithmetic_hash) << match;
    EXPECT_EQ(trees(Session::placed_anew(std::make_shared<const PlacedGraph>(other), none).plan(3, Mode::run)), left) << match;
  }
}

/// Many workers promise no bits; one whose gradients are never stale makes steps.
TEST_F(GpuSessions, train_by_asynchronous_loops) {
  start(32);
  const Graph graph = trained_by_loops();
  Session loops(graph, ParameterServer{.devices = parse_devices("gpu:0"), .staleness = 0, .threads = 1}, options()), steps(graph, Single{.threads = 1});
  int drawn = 0;
  TrainingLoops training(loops, {.rows = 4, .fetches = {"loss"}});
  training.run([&] { return std::optional(feeds_for(graph, 4, static_cast<std::uint64_t>(drawn++))); }, 6, [](const auto&) {});
  for (std::uint64_t k = 0; k < 6; ++k) steps.step(feeds_for(graph, 4, k));
  EXPECT_EQ(loops.state(), steps.state());

  Session many(graph, ParameterServer{.devices = parse_devices("gpu:0-1"), .staleness = 2, .towers = 3, .threads = 1}, options());
  auto loss = [&] { return many.run(feeds_for(graph, 4, 1), {"loss"}).item<float>("loss"); };
  const float before = loss();
  TrainingLoops free(many, {.rows = 4, .fetches = {"loss"}});
  free.run([&] { return std::optional(feeds_for(graph, 4, 1)); }, 24, [](const std::vector<Applied>& gradients) { EXPECT_LE(gradients.at(0).staleness, 2); });
  EXPECT_EQ(free.counts().updates, 24);
  EXPECT_LT(loss(), before);
}

}  // namespace
}  // namespace belfry::test
