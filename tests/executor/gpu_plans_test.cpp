// Plans for GPUs on the fake driver: its memory and streams, the CPU's kernels. Every strategy gives the CPU's bits.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <tuple>

#include <belfry/belfry.h>
#include <belfry/executor/segment.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/all_ops.h>

#include "gpu_plans.h"
#include "op_case.h"
#include "says.h"

namespace belfry::test {
namespace {

/// The kernels that GPUs run, compiled for the host, and what they lack on the host: the whole way but the device.
TEST_F(GpuPlans, train_with_generated_kernels) {
  environment.set("FAKE_CUDA_GPUS", "2");
  environment.set("FAKE_CUDA_WORKS", "1");
  for (auto [name, precision] : {std::pair{"decay", f32}, {"dropout", f32}, {"decay", bf16}}) {
    start(11);
    auto host = std::make_shared<HostGpu>();
    const KernelTables all = generated_tables(host);
    auto graph = std::make_shared<const Graph>(trained_in(name, precision));
    auto plan = placed(graph, to_strategy(Mirrored{.devices = parse_devices("gpu:0-1"), .towers = 4, .threads = 1}), "gpu:0-1", 7, all);
    int on_gpu = 0;
    for (const PlanNode& n : plan->nodes)
      for (const Variant& v : n.scope == Scope::tower ? n.by_class : n.by_group) on_gpu += v.kernel.starts_with("nvrtc");
    EXPECT_GT(on_gpu, 10) << name;
    auto one = placed(graph, to_strategy(Single{.device = cpu(0), .towers = 4, .threads = 1}), "cpu:0", 7, all);
    const Tensors want = train(graph, one, all), got = train(graph, plan, all, [&] { host->build(); });
    for (const auto& [value, tensor] : want) EXPECT_LE(distance(got.at(value), tensor), precision == f32 ? 2e-5 : 0x1p-8) << name << ": '" << value << "'";
  }
}

TEST_F(GpuPlans, that_were_edited_into_what_no_gpu_can_do_are_refused) {
  environment.set("FAKE_CUDA_GPUS", "2");
  start(12);
  const KernelTables all = tables();
  auto graph = std::make_shared<const Graph>(without_requests(training_graph(net("decay"), f32)));
  const PlacedGraph plan = *placed(graph, to_strategy(Mirrored{.devices = parse_devices("gpu:0-1"), .threads = 1}), "gpu:0-1", 8, all);
  auto refused = [&](const std::function<void(PlacedGraph&)>& edit, const std::vector<std::string>& words) {
    auto edited = std::make_shared<PlacedGraph>(plan);
    edit(*edited);
    auto run = [&] {
      Program program(edited, all, {}, open(*edited));
      Runner runner(program);
    };
    EXPECT_TRUE(says(run, words));
  };
  refused([](PlacedGraph& p) {
    for (PlanNode& n : p.nodes)
      if (n.name == "relu") n.by_class[0].kernel = kReferenceKernel;
  }, {"unbound: 'relu'", "a reference", "stands on gpu:"});
  refused([](PlacedGraph& p) { p.cluster.devices[0].space = p.cluster.space(2); }, {"unbound: the memory space 'host' of a GPU is another device's too"});
  refused([](PlacedGraph& p) {
    for (PlanStream& s : p.streams) s.thread = 0;
  }, {"unbound: the host thread 0 launches on two GPUs"});
}

std::int64_t scratch_of_sums(const PlacedGraph& plan) {
  std::int64_t out = 0;
  for (const PlanNode& n : plan.nodes)
    if (n.op == kAggregate)
      for (const Variant& v : n.by_group) out += v.scratch_bytes;
  return out;
}

/// Sums read the parts of peers and of other logical devices where they lie; others land theirs, and the plan has room for that.
TEST_F(GpuPlans, land_only_what_a_sum_cannot_read) {
  environment.set("FAKE_CUDA_GPUS", "2");
  environment.set("FAKE_CUDA_WORKS", "1");
  environment.set("FAKE_CUDA_PEER", "0");
  start(13);
  const KernelTables all = tables();
  auto graph = std::make_shared<const Graph>(without_requests(training_graph(net("decay"), f32)));
  auto mirrored = [&](const char* devices) { return placed(graph, to_strategy(Mirrored{.devices = parse_devices(devices), .towers = 4, .threads = 1}), devices, 8, all); };
  const Tensors want = train(graph, placed(graph, to_strategy(Single{.device = cpu(0), .towers = 4, .threads = 1}), "cpu:0", 8, all), all);
  auto apart = mirrored("gpu:0-1"), sliced = mirrored("gpu:0/0,gpu:0/1"), both = mirrored("gpu:0/0,gpu:0/1,gpu:1/0,gpu:1/1");
  EXPECT_EQ(scratch_of_sums(*sliced), 0);
  EXPECT_GT(scratch_of_sums(*apart), 0);
  EXPECT_GT(scratch_of_sums(*both), 0);
  for (const auto& plan : {apart, sliced, both}) EXPECT_EQ(train(graph, plan, all), want);
  peers = {parse_devices("gpu:0-1")};
  auto read = mirrored("gpu:0-1");
  EXPECT_EQ(scratch_of_sums(*read), 0);
  EXPECT_EQ(scratch_of_sums(*mirrored("gpu:0/0,gpu:0/1,gpu:1/0,gpu:1/1")), 0);
  EXPECT_TRUE(says([&] { train(graph, read, all); }, {"unbound: ", "must land", "derive the plan anew"}));
  environment.set("FAKE_CUDA_PEER", "1");
  auto copies = [&](int seed, const std::shared_ptr<const PlacedGraph>& plan) {
    start(seed);
    EXPECT_EQ(train(graph, plan, all), want);
    return function<fake_cuda::Calls>("fake_cuda_calls")("cuMemcpyAsync");
  };
  EXPECT_LT(copies(14, read), copies(15, apart));  // a plan that lands parts has them landed, though they could be read
}

/// A library's sums: near the CPU's, in an order of their own, and said in the plan.
TEST_F(GpuPlans, sum_by_nccl_where_the_placement_asks_for_it) {
  find_nccl();
  environment.set("FAKE_CUDA_GPUS", "3");
  environment.set("FAKE_CUDA_WORKS", "1");
  const KernelTables all = tables();
  auto graph = std::make_shared<const Graph>(without_requests(training_graph(net("decay"), f32)));
  auto nccl = [](const PlacedGraph& plan, const char* op) {
    return std::count_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& n) { return n.op == op && std::any_of(n.by_group.begin(), n.by_group.end(), [](const Variant& v) { return v.kernel == kNccl; }); });
  };
  const std::vector<DeviceId> three = parse_devices("gpu:0-2");
  int seed = 20;
  for (int towers : {3, 6}) {
    start(++seed);
    auto single = placed(graph, to_strategy(Single{.device = cpu(0), .towers = towers, .threads = 1}), "cpu:0", 13, all);
    const Tensors want = train(graph, single, all);
    for (const Strategy& s : {to_strategy(Mirrored{.devices = three, .towers = towers, .threads = 1, .collectives = Collectives::fastest}), to_strategy(Sharded{.devices = three, .towers = towers, .threads = 1, .collectives = Collectives::fastest})}) {
      start(++seed);
      auto plan = placed(graph, s, "gpu:0-2", 13, all);
      EXPECT_GT(nccl(*plan, kAggregate), 0) << s.name;
      EXPECT_GT(nccl(*plan, kAllGather), 0) << s.name;
      EXPECT_NE(plan->arithmetic_hash, single->arithmetic_hash);
      EXPECT_EQ(write_plan(read_plan(write_plan(*plan), "plan", std::make_shared<const OpSet>(standard_ops()))), write_plan(*plan));
      const Tensors got = train(graph, plan, all);
      for (const auto& [value, tensor] : want) EXPECT_LE(distance(got.at(value), tensor), 2e-6) << s.name << ": '" << value << "'";
    }
  }
  auto own = placed(graph, to_strategy(Mirrored{.devices = parse_devices("gpu:0/0,gpu:0/1,gpu:1"), .towers = 3, .threads = 1, .collectives = Collectives::fastest}), "gpu:0/0,gpu:0/1,gpu:1", 13, all);
  EXPECT_EQ(nccl(*own, kAggregate), 0) << "two ranks on one GPU";
  environment.set("FAKE_CUDA_PATIENCE", "500");
  for (const char* at : {"9", "30", "61"}) {
    environment.set("FAKE_CUDA_FAIL", std::string("cuLaunchHostFunc:") + at + ":700");
    start(++seed);
    auto plan = placed(graph, to_strategy(Mirrored{.devices = three, .threads = 1, .collectives = Collectives::fastest}), "gpu:0-2", 12, all);
    EXPECT_TRUE(says<DeviceError>([&] { train(graph, plan, all); }, {"(700)"})) << at;
  }
  environment.unset("FAKE_CUDA_FAIL");
  environment.unset("FAKE_CUDA_PATIENCE");
}

/// One GPU keeps a weight that the other reads, and both wait for the host between: no rank comes to a sum before what the other needs of it.
TEST_F(GpuPlans, sum_by_nccl_beside_what_the_host_computes) {
  find_nccl();
  environment.set("FAKE_CUDA_GPUS", "2");
  environment.set("FAKE_CUDA_WORKS", "1");
  environment.set("FAKE_CUDA_PATIENCE", "5000");
  const KernelTables all = tables();
  Builder b("beside_the_host");
  Value x = b.input("x", f32, {kBatch, 4}), kept = matmul(x, b.variable("v", {4, 4})), w = b.variable("w", {4, 4}), far = matmul(x, w);
  {
    auto on = b.device("cpu:0");
    far = tanh(far);
  }
  b.minimize(mean(kept + far), Sgd{.learning_rate = 0.1f});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  Strategy strategy = to_strategy(Mirrored{.devices = parse_devices("gpu:0-1"), .threads = 1, .collectives = Collectives::fastest});
  strategy.assign = [mirrored = strategy.assign](const auto&... a) {
    std::vector<PlacementRule> rules = mirrored(a...);
    for (const char* node : {"w", "sgd/w", "gradient/matmul_1/*.aggregate"}) rules.insert(rules.begin(), {node, parse_devices("gpu:1"), "by hand"});
    return rules;
  };
  start(60);
  const Tensors want = train(graph, placed(graph, to_strategy(Single{.device = cpu(0), .towers = 2, .threads = 1}), "cpu:0", 8, all), all);
  start(61);
  const Tensors got = train(graph, placed(graph, strategy, "gpu:0-1,cpu:0", 8, all), all);
  for (const auto& [value, tensor] : want) EXPECT_LE(distance(got.at(value), tensor), 2e-6) << value;
}

TEST_F(GpuSessions, give_take_and_evaluate_state_as_on_the_cpu) {
  start(5);
  Graph graph = built("batch_norm");
  Session cpus(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 2, .threads = 1});
  Session gpus(graph, Mirrored{.devices = parse_devices("gpu:0-1"), .towers = 2, .threads = 1}, options());
  auto step = [&](Session& s, std::int64_t batch, std::uint64_t seed) { s.step(feeds_for(graph, batch, seed)); };
  for (std::int64_t batch : {8, 3}) step(cpus, batch, 1), step(gpus, batch, 1);
  EXPECT_EQ(gpus.state(), cpus.state());
  auto feeds = feeds_for(graph, 6, 9);
  EXPECT_TRUE(gpus.predict(feeds, {"normalised"})["normalised"] == cpus.predict(feeds, {"normalised"})["normalised"]);
  const State here = gpus.state();
  step(gpus, 8, 2);
  gpus.load_state(here);
  EXPECT_EQ(gpus.state(), here);
  step(gpus, 8, 3), step(cpus, 8, 3);
  EXPECT_EQ(gpus.state(), cpus.state());
}

TEST_F(GpuSessions, say_which_gpu_failed_and_where_and_end_there) {
  environment.set("FAKE_CUDA_FAIL", "cuLaunchHostFunc:40:700");
  start(6);
  Graph graph = built("decay");
  Session session(graph, Towers{.devices = parse_devices("gpu:0-1"), .variables = cpu(0), .threads = 1}, options());
  auto steps = [&] {
    for (int k = 0; k < 20; ++k) session.step(feeds_for(graph, 8));
  };
  EXPECT_TRUE(says<DeviceError>(steps, {"gpu:", "CUDA_ERROR_ILLEGAL_ADDRESS (700)", "while running '"}));
  EXPECT_TRUE(says<std::runtime_error>(steps, {}));
}

/// The GPUs work; what sums over them is gone.
TEST_F(GpuSessions, say_that_a_library_of_collectives_has_failed_and_end_there) {
  find_nccl();
  environment.set("FAKE_CUDA_FAIL", "ncclAllReduce:9:3");
  start(6);
  Graph graph = built("decay");
  Session session(graph, Mirrored{.devices = parse_devices("gpu:0-1"), .threads = 1, .collectives = Collectives::fastest}, options());
  auto steps = [&] {
    for (int k = 0; k < 20; ++k) session.step(feeds_for(graph, 8));
  };
  EXPECT_TRUE(says<DeviceError>(steps, {"NCCL: gpu:", "its communicator was aborted"}));
  EXPECT_TRUE(says<DeviceError>(steps, {"this session has lost its collectives: NCCL: gpu:", "make a new session, from a checkpoint"}));
}

TEST_F(GpuSessions, end_where_the_host_waits_for_a_gpu_that_fails_while_the_gpu_waits_for_the_host) {
  for (const char* at : {"3", "20", "45", "80", "130"}) {
    environment.set("FAKE_CUDA_FAIL", std::string("cuLaunchHostFunc:") + at + ":700");
    start(9);
    Graph graph = built("decay");
    SessionOptions some = options();
    auto library = std::make_shared<Library>(*some.library);
    library->kernels = tables({"matmul", "relu"});
    some.library = library;
    Session session(graph, Mirrored{.devices = parse_devices("gpu:0-1"), .threads = 1}, some);
    auto steps = [&] {
      for (int k = 0; k < 20; ++k) session.step(feeds_for(graph, 8));
    };
    EXPECT_TRUE(says<DeviceError>(steps, {"gpu:", "(700)"})) << at;
    EXPECT_TRUE(says<DeviceError>(steps, {"this session has lost its GPU", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"})) << at;
    EXPECT_EQ(session.state_after(), StateAfter::untouched) << "by a call that runs nothing";
  }
}

TEST_F(GpuSessions, put_recorded_work_on_the_stream_from_the_second_step_on) {
  environment.set("FAKE_CUDA_FAIL", "cuGraphLaunch:1:700");
  start(8);
  Graph graph = built("decay");
  Session session(graph, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, options());
  session.step(feeds_for(graph, 8));
  EXPECT_TRUE(says<DeviceError>([&] { session.step(feeds_for(graph, 8)); }, {"gpu:0", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"}));
}

/// What cannot be recorded can be launched. The GPU works, and so does the session.
TEST_F(GpuSessions, say_how_to_do_without_recording_where_it_fails) {
  for (const char* fails : {"cuGraphInstantiateWithFlags:1:801", "cuStreamEndCapture:1:901", "cuStreamBeginCapture_v2:1:900"}) {
    environment.set("FAKE_CUDA_FAIL", fails);
    start(10);
    Graph graph = built("decay");
    for (bool graphs : {true, false}) {
      SessionOptions some = options();
      some.cuda_graphs = graphs;
      Session session(graph, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, some);
      session.step(feeds_for(graph, 8));
      if (graphs) {
        EXPECT_TRUE(says<DeviceError>([&] { session.step(feeds_for(graph, 8)); }, {"gpu:0: cu", "with --no-cuda-graph"})) << fails;
      }
      EXPECT_NO_THROW(session.step(feeds_for(graph, 8))) << fails;
    }
  }
}

TEST_F(GpuSessions, say_where_there_is_no_room) {
  environment.set("FAKE_CUDA_MEMORY", "4096");
  start(7);
  Graph graph = built("decay");
  Session session(graph, Single{.device = parse_device("gpu:1"), .threads = 1}, options());
  EXPECT_TRUE(says<DeviceError>([&] { session.step(feeds_for(graph, 1000)); }, {"no room for the", "'gpu:1'"}));
}

/// A driver gives more than it is asked for, each time: so it is asked once for what all programs share, and once for the rest of each.
TEST_F(GpuSessions, ask_for_memory_once_for_all_variables) {
  start(11);
  auto* calls = function<fake_cuda::Calls>("fake_cuda_calls");
  Graph graph = built("batch_norm");
  Session session(graph, Single{.device = parse_device("gpu:0"), .threads = 1}, options());
  const int before = calls("cuMemAlloc_v2");
  session.step(feeds_for(graph, 8));
  EXPECT_GT(session.state().size(), 4u);
  EXPECT_LE(calls("cuMemAlloc_v2") - before, 3) << "state, what else there is, and words for faults";
  const int first = calls("cuMemAlloc_v2");
  session.step(feeds_for(graph, 3));
  EXPECT_LE(calls("cuMemAlloc_v2") - first, 2) << "state is there";
}

/// Rows that lie apart are one copy, however many they are.
TEST_F(GpuSessions, split_along_an_inner_axis_by_few_copies) {
  start(13);
  Builder b("split");
  b.metric("mean", reduce_mean(square(b.input("x", f32, {40, kBatch, 3}))));
  const Graph graph = std::move(b).build();
  Session cpus(graph, Single{.device = cpu(0), .towers = 2, .threads = 1}), gpus(graph, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, options());
  auto copies = [&] { return function<fake_cuda::Calls>("fake_cuda_calls")("cuMemcpyAsync") + function<fake_cuda::Calls>("fake_cuda_calls")("cuMemcpy2DAsync_v2"); };
  const Tensors feeds = feeds_for(graph, 5);
  const int before = copies();
  EXPECT_TRUE(gpus.predict(feeds, {"mean"})["mean"] == cpus.predict(feeds, {"mean"})["mean"]);
  EXPECT_LT(copies() - before, 20);
}

/// Towers in turn are recorded together; what is known of a recorded part grows by its square.
TEST_F(GpuSessions, record_long_steps_in_parts) {
  start(12);
  Builder b("long");
  Value h = b.input("x", f32, {kBatch, 2}), w = b.variable("w", {2, 2});
  for (int k = 0; k < 130; ++k) h = matmul(h, w);
  b.minimize(reduce_sum(square(h)), Sgd{.learning_rate = 0.01});
  const Graph graph = std::move(b).build();
  constexpr int kTowers = 12;
  static_assert(3 * 130 * kTowers > static_cast<int>(kLongestSegment));
  Session cpus(graph, Single{.device = cpu(0), .towers = kTowers, .threads = 1}), gpus(graph, Single{.device = parse_device("gpu:0"), .towers = kTowers, .threads = 1}, options());
  for (int k = 0; k < 3; ++k) {
    const int before = function<fake_cuda::Calls>("fake_cuda_calls")("cuGraphLaunch");
    const Tensors feeds = feeds_for(graph, kTowers, static_cast<std::uint64_t>(k));
    cpus.step(feeds), gpus.step(feeds);
    if (k == 2) {
      EXPECT_EQ(function<fake_cuda::Calls>("fake_cuda_calls")("cuGraphLaunch") - before, 3) << "what waits for no feed, and all towers in two parts";
    }
  }
  EXPECT_EQ(gpus.state(), cpus.state());
}

/// What is missing, with what to do and what stands in, for as many devices as the plan has.
TEST_F(GpuSessions, say_what_keeps_a_gpu_from_being_used) {
  find_nccl();
  environment.set("FAKE_CUDA_GPUS", "3");
  environment.set("FAKE_NCCL_VERSION", "22703");
  start(17);
  Graph graph = built("decay");
  const Strategy by_nccl = to_strategy(Mirrored{.devices = parse_devices("gpu:0-2"), .threads = 1, .collectives = Collectives::fastest});
  const std::string offer = "sim:0-2 can stand in for gpu:0-2 with the CPU's numbers: ";
  {
    Session session(graph, by_nccl, options());
    for (int k = 0; k < 2; ++k) EXPECT_TRUE(says([&] { session.step(feeds_for(graph, 9)); }, {"device gpu:0 cannot be used: NCCL: wrong version: ", "is 2.27.3, wanted is 2.28", "; install it (pip install nvidia-nccl-cu13)", offer + "name them where gpu:0-2 is named"}));
    Session given = Session::from_plan(std::make_shared<const PlacedGraph>(session.plan(9)), options());
    EXPECT_TRUE(says([&] { given.step(feeds_for(graph, 9)); }, {"NCCL: wrong version: ", offer + "belfry place PLAN --devices sim:0-2 -o NEW"}));
  }
  environment.unset("FAKE_NCCL_VERSION");
  for (auto [call, name, way_out] : {std::tuple{"cuDevicePrimaryCtxRetain:3:2", "gpu:1", "other processes hold its memory"}, {"cuDevicePrimaryCtxRetain:2:46", "gpu:0", "another process has it for itself alone"}, {"cuDeviceGet:1:101", "gpu:0", "belfry devices lists"}}) {
    environment.set("FAKE_CUDA_FAIL", call);
    start(18);
    toolkit_->driver();
    Session held(graph, Mirrored{.devices = parse_devices("gpu:0-2"), .threads = 1}, options());
    EXPECT_TRUE(says([&] { held.step(feeds_for(graph, 9)); }, {"device " + std::string(name) + " cannot be used: no context can be made on it: cuDevice", way_out, offer})) << call;
  }
}

/// A cluster may have more than a plan uses.
TEST_F(GpuSessions, open_no_gpu_that_a_plan_leaves_idle) {
  start(20);
  Graph graph = built("decay");
  SessionOptions some = options();
  some.cluster = local_cluster(parse_devices("gpu:0,cpu:0"), 2);
  auto plan = std::make_shared<const PlacedGraph>(Session(graph, Single{.device = cpu(0), .threads = 1}, some).plan(8));
  environment.set("BELFRY_CUDA_BACKEND", "/nowhere/libbelfry_cuda.so");
  Session given = Session::from_plan(plan), alone(graph, Single{.threads = 1});
  for (Session* s : {&given, &alone}) s->step(feeds_for(graph, 8));
  EXPECT_EQ(given.state(), alone.state());
}

/// Decisions and arithmetic stay, the devices are others, and so are the kernels.
TEST_F(GpuSessions, have_plans_that_other_devices_run) {
  start(19);
  Graph graph = built("decay");
  Session gpus(graph, Towers{.devices = parse_devices("gpu:0/0,gpu:0/1"), .variables = parse_device("gpu:0/1"), .towers = 4, .threads = 1}, options());
  auto plan = std::make_shared<const PlacedGraph>(gpus.plan(8));
  gpus.step(feeds_for(graph, 8));
  for (const char* devices : {"sim:4-5", "cpu:0-1", "cpu:0,sim:0", "gpu:1,gpu:0"}) {
    std::vector<std::string> said;
    SessionOptions others = std::string(devices).starts_with("gpu") ? options() : SessionOptions();
    others.devices = parse_devices(devices);
    others.notice = [&](const std::string& text) { said.push_back(text); };
    Session there = Session::from_plan(plan, others);
    there.step(feeds_for(graph, 8));
    EXPECT_EQ(there.state(), gpus.state()) << devices;
    ASSERT_FALSE(said.empty());
    EXPECT_EQ(said[0], "not the plan that was given: its decisions, with " + to_string(others.devices) + " in place of gpu:0/0,gpu:0/1");
  }
  auto on = [&](const char* devices) { return [plan, devices] { Session::from_plan(plan, {.devices = parse_devices(devices)}); }; };
  EXPECT_TRUE(says(on("sim:0"), {"--devices sim:0: the plan's nodes are on gpu:0/0,gpu:0/1", "name 2 devices in place of these, in their order, as sim:0-1"}));
}

}  // namespace
}  // namespace belfry::test
