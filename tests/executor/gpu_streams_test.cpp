// Streams of GPUs on the fake driver: staging of feeds, waits, host threads, what kernels find wrong, comparisons.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <belfry/belfry.h>
#include <belfry/executor/device/cuda/gpus_internal.h>
#include <belfry/frontends/session/compare.h>
#include <belfry/frontends/session/trace.h>
#include <belfry/graph/plan/verify.h>

#include "files.h"
#include "gpu_plans.h"
#include "made_rows.h"
#include "no_threads.h"
#include "says.h"

namespace belfry::test {
namespace {

/// Copied into the other buffer while a step reads the first: the caller's memory is not looked at again.
TEST_F(GpuPlans, stage_the_next_feeds_while_a_step_runs) {
  const KernelTables all = tables();
  auto graph = std::make_shared<const Graph>(without_requests(trained_in("conv", f32)));
  steps = 7;
  const Tensors want = train(graph, placed(graph, to_strategy(Single{.device = cpu(0), .towers = 2, .threads = 1}), "cpu:0", 7, all), all);
  told.assign(steps, true);
  lost_feeds = true;
  for (int seed = 0; seed < 8; ++seed) {
    start(seed);
    EXPECT_EQ(train(graph, placed(graph, to_strategy(Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}), "gpu:0", 7, all), all), want) << "seed " << seed;
  }
}

/// The verifier accepts a plan without a wait only where others stand for it; the driver sees a race where it does not.
TEST_F(GpuPlans, need_the_waits_that_the_verifier_asks_for) {
  environment.set("FAKE_CUDA_GPUS", "2");
  environment.set("FAKE_CUDA_WORKS", "1");
  const KernelTables all = tables();
  auto graph = std::make_shared<const Graph>(without_requests(trained_in("decay", f32)));
  start(21);
  auto plan = placed(graph, to_strategy(Mirrored{.devices = parse_devices("gpu:0-1"), .towers = 2, .threads = 1}), "gpu:0-1", 7, all);
  const Tensors want = train(graph, plan, all);
  int covered = 0, races_seen = 0;
  for (std::size_t i = 0; i < plan->nodes.size(); ++i)
    for (std::size_t w = 0; w < plan->nodes[i].waits.size(); ++w) {
      auto edited = std::make_shared<PlacedGraph>(*plan);
      auto& waits = edited->nodes[i].waits;
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      const bool accepted = verify(*edited).empty();
      start(30 + static_cast<int>(w));
      may_race = !accepted;
      const Tensors got = train(graph, edited, all);
      if (accepted) {
        EXPECT_EQ(got, want) << plan->nodes[i].name;
      }
      covered += accepted;
      races_seen += !accepted && !races().empty();
      reset();
      may_race = false;
    }
  EXPECT_GT(covered, 0);
  EXPECT_GT(races_seen, 0);
}

TEST_F(GpuPlans, put_joins_before_towers_where_the_device_can_choose) {
  const KernelTables all = tables();
  auto graph = std::make_shared<const Graph>(without_requests(trained_in("decay", f32)));
  start(23);
  auto plan = placed(graph, to_strategy(Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}), "gpu:0", 7, all);
  Program program(plan, all, {}, open(*plan));
  std::map<std::string, int> priority;
  for (std::size_t s = 0; s < plan->streams.size(); ++s)
    if (Queue* q = program.queue(static_cast<int>(s))) {
      EXPECT_EQ(function<CUresult(CUstream, int*)>("cuStreamGetPriority")(static_cast<CUstream>(q->stream()), &priority[plan->streams[s].name]), CUDA_SUCCESS);
    }
  EXPECT_LT(priority.at("main"), priority.at("tower0"));  // the most urgent is the smallest
}

/// A graph takes the priority of the stream that it is launched on for all its kernels, unless it is told to keep theirs.
TEST_F(GpuPlans, put_joins_before_towers_where_they_were_recorded_too) {
  const KernelTables all = tables();
  auto graph = std::make_shared<const Graph>(without_requests(trained_in("decay", f32)));
  start(24);
  train(graph, placed(graph, to_strategy(Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}), "gpu:0", 7, all), all);
  auto* calls = function<fake_cuda::Calls>("fake_cuda_calls");
  EXPECT_GT(calls("priorities kept"), 0);
  EXPECT_EQ(calls("priorities lost"), 0);
}

TEST_F(GpuPlans, run_the_streams_of_one_gpu_from_two_host_threads) {
  const KernelTables all = tables();
  auto graph = std::make_shared<const Graph>(without_requests(trained_in("batch_norm", f32)));
  auto plan = std::make_shared<PlacedGraph>(*placed(graph, to_strategy(Single{.device = parse_device("gpu:0"), .towers = 3, .threads = 1}), "gpu:0", 7, all));
  environment.set("FAKE_CUDA_WORKS", "1");
  start(22);
  const Tensors want = train(graph, plan, all);
  int past = 0;
  for (const PlanStream& s : plan->streams) past = std::max(past, s.thread + 1);
  for (PlanStream& s : plan->streams)
    if (plan->cluster.devices[static_cast<std::size_t>(s.device)].id.kind == "gpu" && s.name == "main") s.thread = past;
  for (int seed = 0; seed < 4; ++seed) {
    start(seed);
    told = {seed % 2 == 1, false, true};
    EXPECT_EQ(train(graph, plan, all), want) << "seed " << seed;
  }
}

/// Batches of two sizes, epoch after epoch in another order: made and copied ahead or not, they are the same.
TEST_F(GpuSessions, fit_on_batches_that_are_made_while_a_step_runs) {
  start(18);
  Graph graph = without_requests(built("batch_norm"));
  graph.metrics.erase("normalised");  // of many numbers
  const DataSet data{feeds_for(graph, 22)};
  auto trained = [&](Session session) {
    session.load_state(state_for(session.training_graph()));
    const History history = fit(session, data, {.batch = 8, .epochs = 3, .shuffle = 5});
    return std::pair(session.state(), history.back().metrics);
  };
  const auto want = trained(Session(graph, Single{.device = cpu(0), .towers = 2, .threads = 1}));
  for (const char* devices : {"gpu:0", "gpu:0-1"})
    EXPECT_EQ(trained(Session(graph, Mirrored{.devices = parse_devices(devices), .towers = 2, .threads = 1}, options())), want) << devices;
}

/// A row that cannot be made ends a training at its turn, wherever the batch before it is when it is made.
TEST_F(GpuSessions, fit_up_to_a_row_that_cannot_be_made) {
  start(18);
  Graph graph = without_requests(built("batch_norm"));
  graph.metrics.erase("normalised");
  DataSet data{feeds_for(graph, 24)};
  make_rows(data, data.columns.begin()->first, [](std::int64_t row) {
    if (row == 18) throw UserError("row 18 is torn");
  });
  auto trained = [&](Session session) {
    session.load_state(state_for(session.training_graph()));
    int told = 0;
    EXPECT_TRUE(says<UserError>([&] { fit(session, data, {.batch = 8, .epochs = 1, .on_batch = [&](const Progress&) { ++told; }}); }, {"row 18 is torn"}));
    EXPECT_EQ(told, 2);
    EXPECT_EQ(session.data_progress.steps, 2);
    return session.state();
  };
  EXPECT_EQ(trained(Session(graph, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, options())), trained(Session(graph, Single{.device = cpu(0), .towers = 2, .threads = 1})));
}

/// Copied while the step before runs, and not looked at again; but a session keeps 64 programs, and where the one that has the copy goes the
/// tensors are read.
TEST_F(GpuSessions, copy_a_batch_ahead_and_again_where_its_program_has_made_room) {
  start(19);
  const Graph graph = without_requests(built("decay"));
  enum Between { nothing, batch_lost, room_made };
  auto trained = [&](Session session, Between between) {
    session.load_state(state_for(session.training_graph()));
    std::vector<Tensors> tensors;
    for (std::uint64_t k = 0; k < 3; ++k) tensors.push_back(feeds_for(graph, 8, k));
    const std::vector<Batch> batches(tensors.begin(), tensors.end());
    for (std::size_t k = 0; k < batches.size(); ++k) {
      session.step(batches[k], {}, [&] { return batches[std::min(k + 1, batches.size() - 1)]; });
      if (between == batch_lost && k + 1 < batches.size())
        for (auto& [name, tensor] : tensors[k + 1]) std::fill_n(tensor.raw(), tensor.bytes().size(), std::byte{0});
      if (between != room_made || k > 0) continue;
      for (std::int64_t rows = 9; rows < 9 + 64; ++rows) session.plan(rows);
      EXPECT_TRUE(says([&] { session.last_program(); }, {"nothing has run yet"})) << "the program that has the copy is there still";
    }
    return session.state();
  };
  const State want = trained(Session(graph, Single{.device = cpu(0), .towers = 2, .threads = 1}), nothing);
  for (Between between : {nothing, batch_lost, room_made})
    EXPECT_EQ(trained(Session(graph, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, options()), between), want) << between;
}

/// What the caller does in `next` may fail, and may not be a call of the session that asks: told when the step is done.
TEST_F(GpuSessions, tell_what_next_throws_behind_the_step) {
  start(20);
  const Graph graph = without_requests(built("decay"));
  Session session(graph, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, options()), plain(graph, Single{.device = cpu(0), .towers = 2, .threads = 1});
  for (Session* s : {&session, &plain}) s->load_state(state_for(session.training_graph()));
  const Tensors rows = feeds_for(graph, 8);
  auto fails = [&](const std::function<Batch()>& next, const std::string& words) {
    EXPECT_TRUE(says<UserError>([&] { session.step(rows, {}, next); }, {words}));
    EXPECT_EQ(session.state_after(), StateAfter::complete);
    plain.step(rows);
    EXPECT_EQ(session.state(), plain.state());
  };
  const std::string words = "this session is at work, and asks for the next batch";
  fails([]() -> Batch { throw UserError("no more rows"); }, "no more rows");
  fails([&] { session.step(rows); return Batch(rows); }, words);
  fails([&] { session.state(); return Batch(rows); }, words);
  fails([&] { session.plan(9); return Batch(rows); }, words);
  session.step(rows, {}, [&] { return Batch(); });
  plain.step(rows);
  EXPECT_EQ(session.state(), plain.state());
  Tensors large = rows;  // for an input of i32: told at its own turn
  HostTensor& numbers = large.at("label");
  numbers = HostTensor(i64, numbers.shape());
  numbers.data<std::int64_t>()[3] = std::int64_t{1} << 40;
  session.step(rows, {}, [&] { return Batch(large); });
  plain.step(rows);
  EXPECT_EQ(session.state(), plain.state());
  EXPECT_TRUE(says<UserError>([&] { session.step(large); }, {"'label'", "1099511627776"}));
}

TEST_F(GpuSessions, compare_node_by_node_with_the_cpu) {
  start(14);
  Graph graph = without_requests(built("batch_norm"));
  Session cpus(graph, Single{.device = cpu(0), .towers = 2, .threads = 1}), gpus(graph, Mirrored{.devices = parse_devices("gpu:0-1"), .towers = 2, .threads = 1}, options());
  std::vector<Tensors> data;
  for (std::uint64_t k = 0; k < 2; ++k) data.push_back(feeds_for(graph, 8, k));
  auto compared = [&](const State& second) {
    auto plan = [](Session& s) { return std::make_shared<const PlacedGraph>(s.plan(8)); };
    return compare(plan(cpus), plan(gpus), *gpus.options().library, {data.begin(), data.end()}, cpus.state(), second);
  };
  const Comparison same = compared({});
  EXPECT_FALSE(same.difference.has_value());
  EXPECT_EQ(same.first_hash, same.second_hash);
  EXPECT_GT(same.values, 100);
  State other = cpus.state();
  other.begin()->second.data<float>()[0] += 1;
  EXPECT_TRUE(compared(other).difference.has_value());
}

/// A device goes on with zeros; the host sees it when the step is over, and the variables are spoilt then.
TEST_F(GpuSessions, stop_at_an_index_that_is_none_with_the_cpus_words) {
  start(15);
  Graph graph = without_requests(built("embedding"));
  Session cpus(graph, Single{.device = cpu(0), .towers = 2, .threads = 1}), gpus(graph, Mirrored{.devices = parse_devices("gpu:0-1"), .towers = 2, .threads = 1}, generated_options());
  const Tensors good = feeds_for(graph, 8);
  for (int k = 0; k < 3; ++k) gpus.step(good);
  for (auto [input, row, bad] : {std::tuple{"ids", 23, 1000}, {"ids", 4, -1}, {"label", 6, 5}}) {
    Tensors feeds = good;
    feeds.at(input).data<std::int32_t>()[static_cast<std::size_t>(row)] = bad;
    const std::string all = message_of([&] { cpus.step(feeds); }), words = all.substr(0, all.find("; while running"));
    const State before = gpus.state();
    EXPECT_TRUE(says([&] { gpus.run(feeds); }, {words, row > 5 ? "on gpu:1" : "on gpu:0"})) << all;
    EXPECT_EQ(gpus.state(), before);
    EXPECT_TRUE(says([&] { gpus.step(feeds); }, {words, "while running '"}));
    EXPECT_EQ(gpus.state_after(), StateAfter::torn);
    EXPECT_TRUE(says([&] { gpus.step(good); }, {"a failed step left these variables partly updated"}));
    gpus.load_state(before);
    gpus.step(good);
  }
}

/// Whether they have found faults is not known then.
TEST_F(GpuSessions, fail_where_what_kernels_have_found_cannot_be_read) {
  const Graph graph = without_requests(built("embedding"));
  const Tensors good = feeds_for(graph, 8);
  int copies = 0;
  for (bool fails : {false, true}) {
    if (fails) environment.set("FAKE_CUDA_FAIL", "cuMemcpyAsync:" + std::to_string(copies) + ":1");
    start(36);
    Session gpus(graph, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, generated_options());
    gpus.step(good);
    if (fails) {
      EXPECT_TRUE(says<DeviceError>([&] { gpus.step(good); }, {"gpu:0: cuMemcpyAsync gives"}));
      EXPECT_EQ(gpus.state_after(), StateAfter::torn);
      gpus.reset();
    }
    gpus.step(good);
    copies = function<fake_cuda::Calls>("fake_cuda_calls")("cuMemcpyAsync");  // the last one reads the faults
  }
}

/// NVTX looks for a tool once, when it is first called.
const bool kWatched = setenv("NVTX_INJECTION64_PATH", BELFRY_FAKE_CUDA, 1) == 0;

TEST_F(GpuSessions, name_what_they_put_on_streams) {
  ASSERT_TRUE(kWatched);
  start(16);
  Graph graph = without_requests(built("decay"));
  Session session(graph, Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}, options());
  auto ranges = [&] {
    session.step(feeds_for(graph, 8));
    return std::string(function<fake_cuda::Ranges>("fake_cuda_ranges")());
  };
  ranges();
  EXPECT_THAT(ranges(), testing::HasSubstr("tower_1/relu\n")) << "recorded by name";
  const std::string launched = ranges();
  EXPECT_THAT(launched, testing::HasSubstr(" … "));
  EXPECT_THAT(launched, testing::Not(testing::HasSubstr("tower_1/relu\n")));
  EXPECT_THAT(launched, testing::Not(testing::HasSubstr("did not begin")));
  EXPECT_THAT(launched, testing::Not(testing::ContainsRegex("\n "))) << "a range was not ended";
}

TEST_F(GpuSessions, trace_how_busy_the_gpus_are) {
  Folder folder;
  std::filesystem::copy_file(BELFRY_FAKE_CUDA, folder / "libnvidia-ml.so.1");
  environment.set("BELFRY_CUDA_PATH", folder.path().string());
  start(17);
  Graph graph = without_requests(built("decay"));
  std::vector<std::string> said;
  auto traced = [&](bool watched = true) {
    SessionOptions some = options();
    auto library = std::make_shared<Library>(*some.library);
    library->gpu_meter = [](const std::vector<int>& gpus) { return nvml_meter(std::make_shared<CudaToolkit>(), gpus); };
    some.library = library;
    some.notice = [&](const std::string& text) { said.push_back(text); };
    Session session(graph, Mirrored{.devices = parse_devices("gpu:0/0,gpu:0/1,gpu:1"), .threads = 1}, some);
    session.step(feeds_for(graph, 8));
    std::optional<NoThreads> none;
    if (!watched) none.emplace();
    session.set_trace(true);
    for (int k = 0; k < 2; ++k) session.step(feeds_for(graph, 8));
    return chrome_trace(session.last_program()->bound(), session.trace(), session.gpu_readings());
  };
  const std::string text = traced();
  EXPECT_THAT(said, testing::IsEmpty());
  for (const char* counter : {"\"name\": \"gpu:0 busy\", \"args\": {\"percent\": 10}",
                              "\"name\": \"gpu:1 busy\", \"args\": {\"percent\": 20}", "\"gpu:1 memory used\", \"args\": {\"bytes\": 268435456}", "{\"watts\": 123.5}"})
    EXPECT_THAT(text, testing::HasSubstr(counter));
  EXPECT_THAT(traced(false), testing::Not(testing::HasSubstr("busy")));
  environment.set("FAKE_NVML_INIT", "9");
  EXPECT_THAT(traced(), testing::Not(testing::HasSubstr("busy")));
  EXPECT_THAT(said, testing::ElementsAre(testing::HasSubstr("the trace has no utilisation of GPUs: no thread can be started"), testing::HasSubstr("the trace has no utilisation of GPUs: NVML does not start")));
}

}  // namespace
}  // namespace belfry::test
