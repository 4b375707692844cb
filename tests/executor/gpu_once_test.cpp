// What is made once, on GPUs: outside what is recorded, with the CPU's bits, and without races.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include <belfry/belfry.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/structural.h>

#include "gpu_plans.h"
#include "says.h"

namespace belfry::test {
namespace {

/// Values of variables alone, some by way of others, beside layers.
Graph with_values_of_variables() {
  Builder b("valued");
  Value h = b.input("x", f32, {kBatch, 8});
  for (int k = 0; k < 3; ++k) {
    const std::string name = "layer_" + std::to_string(k);
    Value w = reshape(square(b.variable(name + "/w", {64})), {8, 8});
    h = tanh(matmul(h, w + b.variable(name + "/v", {8, 8})) * (square(b.variable(name + "/scale", {8})) + 0.5));
  }
  b.metric("h", h);
  b.metric("sums", reduce_sum(h, {.axes = {1}}));
  return run_passes(inference_passes(), std::move(b).build());
}

class GpuOnce : public GpuPlans {
 protected:
  GpuOnce() {
    environment.set("FAKE_CUDA_GPUS", "2");
    environment.set("FAKE_CUDA_WORKS", "1");
  }

  struct Ran {
    std::vector<Tensors> fetched;
    std::vector<int> launches;  ///< calls of each step
  };

  /// New values for the variables before the steps that say so.
  Ran run(const std::shared_ptr<const PlacedGraph>& plan, const KernelTables& all, const std::vector<bool>& set) {
    Ran out;
    Program program(plan, all, {}, open(*plan));
    Runner runner(program);
    auto* calls = function<fake_cuda::Calls>("fake_cuda_calls");
    for (std::size_t k = 0, state = 0; k < set.size(); ++k) {
      if (set[k]) {
        ++state;
        for (const auto& [name, value] : state_for(*graph, state)) program.set_state(name, value);
      }
      const Tensors feeds = feeds_for(*graph, plan->batch, k);
      const int before = calls("cuLaunchHostFunc");
      Outcome o = runner.run(views(feeds), {.graphs = recorded});
      if (o.error) std::rethrow_exception(o.error);
      out.launches.push_back(calls("cuLaunchHostFunc") - before);
      out.fetched.push_back(std::move(o.fetched));
    }
    return out;
  }

  std::shared_ptr<const Graph> graph = std::make_shared<const Graph>(with_values_of_variables());
};

int made_once_on_gpus(const PlacedGraph& plan) {
  const BoundPlan bound(plan);
  int out = 0;
  auto add = [&](const Step& s) { out += plan.cluster.devices[static_cast<std::size_t>(s.device)].id.kind == "gpu"; };
  std::for_each(bound.once.begin(), bound.once.end(), add);
  return out;
}

TEST_F(GpuOnce, has_the_cpus_bits_whatever_is_set_between_steps) {
  const KernelTables all = tables();
  const std::vector<bool> set = {true, false, false, true, false, true, true, false};
  struct Case {
    const char* devices;
    Strategy strategy;
  };
  const Case cases[] = {{"gpu:0", to_strategy(Single{.device = parse_device("gpu:0"), .towers = 4, .threads = 1})},
                        {"gpu:0-1", to_strategy(Mirrored{.devices = parse_devices("gpu:0-1"), .towers = 4, .threads = 1})},
                        {"gpu:0/0,gpu:0/1", to_strategy(Mirrored{.devices = parse_devices("gpu:0/0,gpu:0/1"), .towers = 4, .threads = 1})},
                        {"gpu:0-1", to_strategy(Towers{.devices = parse_devices("gpu:0-1"), .variables = cpu(0), .towers = 4, .threads = 1})},
                        {"gpu:0-1", to_strategy(Towers{.devices = parse_devices("gpu:0-1"), .variables = parse_device("gpu:1"), .towers = 4, .threads = 1})},
                        {"gpu:0-1", to_strategy(Layers{.devices = parse_devices("gpu:0-1"), .towers = 4, .order = PhaseOrder::gpipe, .threads = 1, .cut = LayerCut::variables})}};
  int seed = 50;
  start(seed);
  const auto host = placed(graph, to_strategy(Single{.device = cpu(0), .towers = 4, .threads = 1}), "cpu:0", 7, all);
  const Ran want = run(host, all, set);
  for (const Case& c : cases)
    for (bool graphs : {true, false}) {
      start(++seed);
      recorded = graphs;
      const auto plan = placed(graph, c.strategy, c.devices, 7, all);
      EXPECT_GT(BoundPlan(*plan).once.size(), 0u);
      EXPECT_EQ(run(plan, all, set).fetched, want.fetched) << c.strategy.name << ", seed " << seed;
    }
}

/// The first step launches all, the second records without what is made once, the third launches what it recorded; new values cost what is made of them.
TEST_F(GpuOnce, is_launched_only_where_variables_were_set) {
  jointly = false;
  const KernelTables all = tables();
  const auto plan = placed(graph, to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), "gpu:0", 8, all);
  const int once = made_once_on_gpus(*plan);
  EXPECT_GE(once, 6);
  for (bool graphs : {false, true}) {
    start(70 + graphs);
    recorded = graphs;
    const std::vector<int> got = run(plan, all, {true, false, false, true, false}).launches;
    EXPECT_EQ(got[0] - once, graphs ? got[1] : got[2]);
    EXPECT_EQ(got[3] - once, got[2]);
    EXPECT_EQ(got[4], got[2]);
    EXPECT_EQ(got[2] == 0, graphs);
  }
}

/// Rows that are looked up in a variable by another: who sets one that is none hears of it at the next step, and goes on with a better one.
TEST_F(GpuOnce, says_what_its_kernels_find_fault_with) {
  Builder b("looked_up");
  Value x = b.input("x", f32, {kBatch, 3});
  b.metric("y", x * gather(b.variable("table", {5, 3}), b.variable("row", {}, {.dtype = i32, .trainable = false})));
  graph = std::make_shared<const Graph>(run_passes(inference_passes(), std::move(b).build()));
  start(90);
  auto host = std::make_shared<HostGpu>();
  const KernelTables all = generated_tables(host);
  const auto plan = placed(graph, to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), "gpu:0", 4, all);
  EXPECT_FALSE(BoundPlan(*plan).once.empty());
  Program program(plan, all, {}, open(*plan));
  Runner runner(program);
  host->build();
  HostTensor table(f32, {5, 3}), row(i32, {});
  for (std::size_t i = 0; i < 15; ++i) table.data<float>()[i] = static_cast<float>(i + 1);
  program.set_state("table", table);
  std::vector<HostTensor> good;
  const Tensors feeds = feeds_for(*graph, 4);
  for (std::int32_t r : {2, 2, 9, 9, 2, 4}) {
    if (row.data<std::int32_t>()[0] != r || good.empty()) {
      row.data<std::int32_t>()[0] = r;
      program.set_state("row", row);
    }
    const Outcome o = runner.run(views(feeds));
    EXPECT_EQ(static_cast<bool>(o.error), r == 9);
    if (o.error) EXPECT_TRUE(says([&] { std::rethrow_exception(o.error); }, {"9"}));
    else good.push_back(o.fetched.at("y"));
  }
  ASSERT_EQ(good.size(), 4u);
  EXPECT_EQ(good[0], good[1]);
  EXPECT_EQ(good[0], good[2]);
  EXPECT_FALSE(good[0] == good[3]);
}

/// Whatever of it fails, the step has not begun, and the next run makes all.
TEST_F(GpuOnce, is_made_again_behind_a_failure) {
  const KernelTables all = tables();
  start(91);
  const auto plan = placed(graph, to_strategy(Mirrored{.devices = parse_devices("gpu:0-1"), .towers = 4, .threads = 1}), "gpu:0-1", 7, all);
  const std::vector<bool> set = {true, false};
  const Tensors want = run(plan, all, set).fetched[1];
  Program program(plan, all, {}, open(*plan));
  Runner runner(program);
  for (const auto& [name, value] : state_for(*graph, 1)) program.set_state(name, value);
  const Tensors feeds = feeds_for(*graph, plan->batch, 1);
  for (const Step& victim : program.bound().once) {
    program.set_state("layer_0/scale", state_for(*graph, 1).at("layer_0/scale"));
    std::atomic<int> steps = 0;
    RunOptions options;
    options.before = [&](const Step& s) {
      if (&s == &victim) throw UserError("on purpose");
      steps += !plan->nodes[static_cast<std::size_t>(s.node)].once;
    };
    EXPECT_TRUE(runner.run(views(feeds), options).error);
    EXPECT_EQ(steps, 0);
    for (int k = 0; k < 2; ++k) EXPECT_EQ(runner.run(views(feeds)).fetched, want);
  }
}

/// Recorded, launched jointly or one by one, traced: the same.
TEST_F(GpuOnce, is_as_planned_with_traces) {
  const KernelTables all = tables();
  const Tensors want = train(graph, placed(graph, to_strategy(Single{.device = cpu(0), .towers = 4, .threads = 1}), "cpu:0", 7, all), all);
  int seed = 80;
  for (const char* devices : {"gpu:0-1", "gpu:0/0,gpu:0/1"}) {
    start(++seed);
    EXPECT_EQ(train(graph, placed(graph, to_strategy(Mirrored{.devices = parse_devices(devices), .towers = 4, .threads = 1}), devices, 7, all), all), want);
  }
}

}  // namespace
}  // namespace belfry::test
