// Feeds that land in the memory of GPUs on the fake driver: whose streams order what, and what happens where runs or copies fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <belfry/belfry.h>
#include <belfry/graph/plan/landing.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/graph/structural.h>

#include "gpu_plans.h"
#include "made_rows.h"
#include "says.h"

namespace belfry::test {
namespace {

class GpuLanding : public GpuPlans {
 protected:
  GpuLanding() { environment.set("FAKE_CUDA_GPUS", "2"); }

  std::shared_ptr<const PlacedGraph> on(const std::string& devices, const KernelTables& kernels, int towers = 4) {
    return placed(graph, to_strategy(Mirrored{.devices = parse_devices(devices), .towers = towers, .threads = 1}), devices, 8, kernels);
  }
  Tensors on_the_cpu(const KernelTables& kernels, int towers = 4) {
    return train(graph, placed(graph, to_strategy(Single{.device = cpu(0), .towers = towers, .threads = 1}), "cpu:0", 8, kernels), kernels);
  }
  Tensors variables(const Program& program) const {
    Tensors out;
    for (NodeId id : graph->variables()) out.insert_or_assign(graph->node(id).name, program.state(graph->node(id).name));
    return out;
  }

  std::shared_ptr<const Graph> graph = std::make_shared<const Graph>(without_requests(trained_in("batch_norm", f32)));
};

/// Ahead or not, recorded or not, on devices that share a GPU or not; the caller's memory is not looked at again.
TEST_F(GpuLanding, gives_the_cpus_bits_however_it_is_told) {
  const KernelTables all = tables();
  steps = 6;
  const Tensors want = on_the_cpu(all);
  int seed = 0;
  for (const char* works : {"0", "1"})
    for (const char* devices : {"gpu:0", "gpu:0-1", "gpu:0/0,gpu:0/1", "gpu:0/0,gpu:0/1,gpu:1"})
      for (bool graphs : {true, false})
        for (const std::vector<bool>& ahead : {std::vector<bool>{}, {true, true, true, true, true}, {false, true, true, false, true}}) {
          environment.set("FAKE_CUDA_WORKS", works);
          start(++seed);
          told = ahead, recorded = graphs, lost_feeds = true;
          const auto plan = on(devices, all);
          EXPECT_GT(device_bytes(*plan)[0].landing, 0);
          EXPECT_EQ(train(graph, plan, all), want) << devices << ", seed " << seed;
        }
}

/// A feed of several slices, of which each device has a share that begins and ends inside one.
TEST_F(GpuLanding, brings_long_feeds_in_slices) {
  Builder b("long");
  const Value x = b.input("x", f32, {kBatch, 800000}), w = b.variable("w", {800000}, {.init = "ones"});
  b.minimize(reduce_mean(square(x * w)), Sgd{.learning_rate = 0.1});
  graph = std::make_shared<const Graph>(run_passes(training_passes(), b.graph()));
  const KernelTables all = tables();
  steps = 2;
  const Tensors want = on_the_cpu(all);
  for (const char* devices : {"gpu:0", "gpu:0-1"}) {
    start(5);
    told = {true};
    EXPECT_EQ(train(graph, on(devices, all), all), want) << devices;
  }
}

/// Other tensors come than were given ahead, all of them or one, while those are still on their way.
TEST_F(GpuLanding, brings_other_feeds_than_were_given_ahead) {
  const KernelTables all = tables();
  steps = 7;
  start(1);
  const Tensors want = on_the_cpu(all);
  std::vector<Tensors> data, others;
  for (std::size_t k = 0; k <= steps; ++k) {
    data.push_back(feeds_for(*graph, 8, k));
    others.push_back(feeds_for(*graph, 8, 100 + k));
  }
  for (int seed = 0; seed < 12; ++seed) {
    start(seed);
    auto plan = on(seed % 2 ? "gpu:0-1" : "gpu:0/0,gpu:0/1", all);
    Program program(plan, all, {}, open(*plan));
    Runner runner(program);
    for (const auto& [name, value] : state_for(*graph)) program.set_state(name, value);
    for (std::size_t k = 0; k < steps; ++k) {
      RunOptions options{.staged = true};
      options.next = [&] {
        Feeds next = views(data[k + 1]), wrong = views(others[k + 1]);
        if (k % 3 == 1) return wrong;
        if (k % 3 == 2) next.begin()->second = wrong.begin()->second;
        return next;
      };
      ASSERT_FALSE(runner.run(views(data[k]), options).error) << seed;
    }
    for (const auto& [name, value] : variables(program)) EXPECT_EQ(value, want.at(name)) << name << ", seed " << seed;
  }
}

/// A run that fails while the next feeds are on their way leaves them there: for the next run, or for the end of all.
TEST_F(GpuLanding, goes_on_or_ends_behind_a_run_that_failed) {
  const KernelTables all = tables();
  steps = 3;
  start(2);
  const Tensors want = on_the_cpu(all);
  const std::size_t before[2] = {used(0), used(1)};
  for (int seed = 0; seed < 10; ++seed) {
    start(seed);
    {
      auto plan = on("gpu:0-1", all);
      Program program(plan, all, {}, open(*plan));
      Runner runner(program);
      for (const auto& [name, value] : state_for(*graph)) program.set_state(name, value);
      std::vector<Tensors> data;
      for (std::size_t k = 0; k <= steps; ++k) data.push_back(feeds_for(*graph, plan->batch, k));
      std::atomic<bool> fails = false;  // met by every thread
      for (std::size_t k = 0; k < steps; ++k) {
        RunOptions options{.next = [&, k] { return views(data[k + 1]); }, .staged = true};
        if (k == 1 && seed % 3 != 2) {
          fails = true;
          options.before = [&](const Step& step) {
            if (is_op(plan->nodes[static_cast<std::size_t>(step.node)], kSplit) && fails.exchange(false)) throw UserError("on purpose");
          };
          const Outcome o = runner.run(views(data[k]), options);
          ASSERT_TRUE(o.error);
          ASSERT_EQ(o.state, StateAfter::untouched);
          if (seed % 3 == 1) break;  // all ends with feeds on their way
          options.before = {};
          options.staged = false;
          ASSERT_FALSE(runner.run(views(data[k]), options).error);
          continue;
        }
        ASSERT_FALSE(runner.run(views(data[k]), options).error);
      }
      for (const auto& [name, value] : seed % 3 == 1 ? Tensors{} : variables(program)) EXPECT_EQ(value, want.at(name)) << name << ", seed " << seed;
    }
    EXPECT_EQ(used(0), before[0]);
    EXPECT_EQ(used(1), before[1]);
  }
}

/// Each copy in turn is refused, or breaks the GPU later: the run that sees it fails, and nothing waits for ever.
TEST_F(GpuLanding, fails_with_each_copy) {
  const KernelTables all = tables();
  steps = 2;
  told = {true, true};
  int refused = 0, broken = 0;
  for (const char* code : {"1", "700"})
    for (int n = 1; n < 120; n += 3) {
      environment.set("FAKE_CUDA_FAIL", "cuMemcpyAsync:" + std::to_string(n) + ":" + code);
      start(n);
      auto plan = on("gpu:0/0,gpu:0/1", all, 2);
      try {
        train(graph, plan, all);
      } catch (const DeviceError& e) {
        EXPECT_NE(std::string(e.what()).find("as the fake driver was told"), std::string::npos) << e.what();
        (code[0] == '1' ? refused : broken) += 1;
      }
    }
  EXPECT_GT(refused, 5);
  EXPECT_GT(broken, 5);
}

/// The first copy of a second step is that of a feed: a session's user reads which node wanted it, and may go on.
TEST_F(GpuSessions, name_the_node_whose_feed_does_not_land) {
  const Graph net = without_requests(built("decay"));
  int copies = 0;
  for (bool fails : {false, true}) {
    if (fails) environment.set("FAKE_CUDA_FAIL", "cuMemcpyAsync:" + std::to_string(copies + 1) + ":1");
    start(31);
    Session session(net, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, options());
    session.step(feeds_for(net, 8));
    copies = function<fake_cuda::Calls>("fake_cuda_calls")("cuMemcpyAsync");
    if (!fails) continue;
    EXPECT_TRUE(says<DeviceError>([&] { session.step(feeds_for(net, 8)); }, {"gpu:0: cuMemcpyAsync gives", "while running 'image.split0' on gpu:0"}));
    EXPECT_EQ(session.state_after(), StateAfter::untouched);
    EXPECT_NO_THROW(session.step(feeds_for(net, 8))) << "the GPU works";
  }
}

/// A feed of which one GPU's share does not land is told of that GPU.
TEST_F(GpuLanding, that_fails_is_told_of_its_own_gpu) {
  const KernelTables all = tables();
  std::set<std::string> told_of;
  int copies = 0;
  for (int n = 0; n < 5; ++n) {  // the first run counts
    if (n) environment.set("FAKE_CUDA_FAIL", "cuMemcpyAsync:" + std::to_string(copies + n) + ":1");
    start(50 + n);
    auto plan = on("gpu:0-1", all);
    Program program(plan, all, {}, open(*plan));
    Runner runner(program);
    const Tensors data = feeds_for(*graph, plan->batch, 1);
    copies = function<fake_cuda::Calls>("fake_cuda_calls")("cuMemcpyAsync");
    const Outcome o = runner.run(views(data));
    if (!n) continue;
    ASSERT_TRUE(o.error) << n;
    try {
      std::rethrow_exception(o.error);
    } catch (const DeviceError& e) {
      EXPECT_TRUE(std::string(e.what()).starts_with(o.failed_device + ": ")) << e.what() << ", but " << o.failed_node << " on " << o.failed_device;
    }
    EXPECT_EQ(o.state, StateAfter::untouched);
    told_of.insert(o.failed_device);
  }
  EXPECT_EQ(told_of, (std::set<std::string>{"gpu:0", "gpu:1"}));
}

/// What the plan says, and not a byte more.
TEST_F(GpuLanding, takes_the_memory_that_the_plan_says) {
  const KernelTables all = tables();
  start(3);
  auto plan = on("gpu:0-1", all);
  const std::vector<DeviceBytes> bytes = device_bytes(*plan);
  std::size_t least = 0;
  {
    Program program(plan, all, {}, open(*plan));
    for (std::size_t d = 0; d < 2; ++d) {
      EXPECT_GT(bytes[d].landing, 0);
      EXPECT_EQ(static_cast<std::int64_t>(used(static_cast<int>(d))), bytes[d].total());
    }
    least = used(0);
  }
  environment.set("FAKE_CUDA_MEMORY", std::to_string(least));
  start(4);
  EXPECT_NO_THROW(train(graph, plan, all));
  environment.set("FAKE_CUDA_MEMORY", std::to_string(least - 1));
  start(5);
  EXPECT_TRUE(says<DeviceError>([&] { train(graph, plan, all); }, {"there is no room for the", "that the plan needs in the memory space 'gpu:0'"}));
}

/// From an edited plan: where feeds land there is no room for what leaves.
TEST_F(GpuLanding, wants_feeds_to_come_from_the_host) {
  const KernelTables all = tables();
  start(6);
  for (const auto& [holders, words] : {std::pair{DeviceList{0}, "is held by no device of the host"}, {DeviceList{}, "waits for the shared 'x', which is not shared"}}) {
    PlacedGraph edited = *on("gpu:0-1", all);
    for (PlanNode& n : edited.nodes)
      if (is_op(n, kInput)) {
        n.holders = holders;
        for (Variant& v : n.by_group.whole()) v.outputs = {Slot::of(Slot::kFeed, {0})};
      }
    const auto plan = std::make_shared<const PlacedGraph>(std::move(edited));
    EXPECT_TRUE(says([&] { Program(plan, all, {}, open(*plan)); }, {"unbound: ", words}));
  }
}

/// Steps one by one on one thread wait for what lands as well.
TEST_F(GpuLanding, is_there_for_steps_that_are_interleaved) {
  const KernelTables all = tables();
  steps = 3;
  start(5);
  const Tensors want = on_the_cpu(all);
  for (int seed = 0; seed < 6; ++seed) {
    start(seed);
    auto plan = on("gpu:0-1", all);
    Program program(plan, all, {}, open(*plan));
    Runner runner(program);
    for (const auto& [name, value] : state_for(*graph)) program.set_state(name, value);
    for (std::size_t k = 0; k < steps; ++k) {
      const Tensors data = feeds_for(*graph, plan->batch, k);
      ASSERT_FALSE(runner.run_interleaved(views(data), at_random(static_cast<std::uint64_t>(seed))).error);
    }
    for (const auto& [name, value] : variables(program)) EXPECT_EQ(value, want.at(name)) << name << ", seed " << seed;
  }
}

/// The next batch is made while one is evaluated; a row that cannot be made is told as where it is made in turn, and no row is left out.
TEST_F(GpuSessions, evaluate_the_rows_that_they_were_given) {
  start(33);
  Graph net = without_requests(built("decay"));
  std::erase_if(net.metrics, [&](const auto& m) { return !net.type(m.second).shape.empty(); });
  Session gpus(net, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, options()), cpus(net, Single{.device = cpu(0), .towers = 2, .threads = 1});
  for (Session* s : {&gpus, &cpus}) s->load_state(state_for(gpus.training_graph()));
  DataSet data;
  data.columns = feeds_for(net, 13);
  EXPECT_EQ(evaluate(gpus, data, 5), evaluate(cpus, data, 5));
  bool fails = true;
  make_rows(data, "image", [&](std::int64_t row) {
    if (row == 7 && std::exchange(fails, false)) throw UserError("row 7 is torn");
  });
  EXPECT_TRUE(says<UserError>([&] { evaluate(gpus, data, 5); }, {"row 7 is torn"}));
  EXPECT_EQ(evaluate(gpus, data, 5), evaluate(cpus, data, 5));
}

/// Feeds land where nothing is trained too, given ahead or not.
TEST_F(GpuSessions, give_the_cpus_values_of_feeds_that_land_where_nothing_is_trained) {
  start(32);
  const Graph net = without_requests(built("decay"));
  Session gpus(net, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, options()), cpus(net, Single{.device = cpu(0), .towers = 2, .threads = 1});
  for (Session* s : {&gpus, &cpus}) s->load_state(state_for(gpus.training_graph()));
  EXPECT_GT(device_bytes(gpus.plan(8, Mode::run))[0].landing, 0);
  std::vector<Tensors> data;
  for (std::uint64_t k = 0; k < 7; ++k) data.push_back(feeds_for(net, 8, k));
  for (std::size_t k = 0; k < 6; ++k) {
    const Batch rows(data[k]);
    const std::size_t ahead = k == 2 ? 0 : k + 1;  // others come than were given
    const Results a = k % 3 ? gpus.run(rows, {}, [&] { return Batch(data[ahead]); }) : gpus.run(rows), b = cpus.run(data[k]);
    for (const auto& [name, value] : b.all()) EXPECT_EQ(a.all().at(name), value) << name << " of run " << k;
  }
}

}  // namespace
}  // namespace belfry::test
