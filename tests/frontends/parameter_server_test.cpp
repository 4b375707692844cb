#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>

#include <belfry/belfry.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/verify.h>

#include "nets.h"
#include "no_threads.h"
#include "ran_as_planned.h"
#include "says.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kMany = std::numeric_limits<std::int64_t>::max();

DataSet rows_for(const Graph& graph, std::int64_t count) {
  DataSet out;
  out.columns = feeds_for(graph, count, 3);
  return out;
}

/// Everything that an update can be: batch norm's statistics, dropout, clipping over all gradients, a schedule, averages.
Graph all_together() {
  Builder b("all_together");
  Value x = b.input("x", f32, {kBatch, 6}), label = b.input("label", i32, {kBatch});
  Value h = relu(nn::batch_norm(nn::dense(x, {.units = 8, .name = "in"})));
  Value loss = mean(sparse_softmax_cross_entropy(nn::dense(dropout(h, b.seed(), b.step(), 0.3, "drop"), {.units = 5, .name = "out"}), label));
  b.minimize(identity(loss, "loss"), Adam{.learning_rate = exponential_decay(b.step(), {.rate = 0.05, .steps = 4, .factor = 0.9})}, {.clip_norm = 0.3, .average_decay = 0.9});
  return std::move(b).build();
}

Graph line() {
  Builder b("line");
  Value x = b.input("x", f32, {kBatch, 3}), y = b.input("y", f32, {kBatch, 2});
  b.minimize(identity(mean(square(nn::dense(x, {.units = 2}) - y)), "loss"), Sgd{.learning_rate = 0.1});
  return std::move(b).build();
}

/// Rows of the line y = x·w + 1.
DataSet on_a_line(std::int64_t count) {
  DataSet out;
  HostTensor x(f32, {count, 3}), y(f32, {count, 2});
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    for (std::size_t j = 0; j < 3; ++j) {
      const auto v = static_cast<float>(std::sin(static_cast<double>(3 * i + j)));
      x.data<float>()[3 * i + j] = v;
      y.data<float>()[2 * i + j % 2] += v + (j < 2 ? 1.0f : 0.0f);
    }
  out.columns = {{"x", x}, {"y", y}};
  return out;
}

/// Lets one thread wait until another has said something.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

VersionedStore::Source batches(int count) {
  return [left = std::make_shared<int>(count)]() -> std::optional<NamedTensors> { return (*left)-- > 0 ? std::optional(NamedTensors{}) : std::nullopt; };
}

VersionedStore::Source batches_of(const DataSet& data, std::int64_t rows) {
  return [all = std::make_shared<Batches>(data, rows)]() -> std::optional<NamedTensors> { return all->next(); };
}

// ---------------------------------------------------------------- synchronous

TEST(ParameterServer, synchronous_gives_the_bits_of_towers_with_variables_on_its_servers) {
  const Graph graph = all_together();
  Session towers(graph, Towers{.devices = parse_devices("cpu:0,cpu:1"), .threads = 1}, {.seed = 5});
  Session served(graph, ParameterServer{.devices = parse_devices("sim:0,sim:1"), .servers = parse_devices("cpu:0,cpu:1"), .threads = 1}, {.seed = 5});
  const auto feeds = feeds_for(graph, 9);
  for (int k = 0; k < 4; ++k) {
    towers.step(feeds);
    served.step(feeds);
  }
  EXPECT_EQ(towers.state(), served.state());
  std::set<std::string> holders;
  const PlacedGraph& plan = served.plan(9);
  for (const PlanNode& n : plan.nodes)
    if (n.scope == Scope::state)
      for (int d : n.holders) holders.insert(to_string(plan.cluster.devices[static_cast<std::size_t>(d)].id));
  EXPECT_THAT(holders, ElementsAre("cpu:0", "cpu:1"));
}

// ---------------------------------------------------------------- the cut

TEST(ParameterServer, workers_push_what_feeds_tell_and_servers_compute_the_rest) {
  const Graph graph = all_together();
  Session session(graph);
  const CutGraphs cut = cut_updates(session.training_graph());
  EXPECT_TRUE(cut.worker.updates.empty());
  EXPECT_EQ(cut.server.updates.size(), session.training_graph().updates.size());
  EXPECT_EQ(cut.pushed.size(), 7u);  // five gradients, since that of a bias before a norm is zero, a mean and a variance
  EXPECT_TRUE(cut.server.find("learning_rate"));
  for (const std::string& name : cut.pushed) EXPECT_TRUE(cut.worker.metrics.contains(name)) << name;
  for (NodeId id : cut.server.variables()) EXPECT_TRUE(cut.server.updates.contains(id)) << cut.server.node(id).name;
}

// ---------------------------------------------------------------- asynchronous

/// As training has them.
Graph with_metrics_of_one_number(Graph g) {
  std::erase_if(g.metrics, [&](const auto& m) { return !g.type(m.second).shape.empty(); });
  return g;
}

TEST(ParameterServer, one_worker_without_staleness_gives_the_bits_of_steps) {
  auto check = [](const Graph& graph) {
    const DataSet data = rows_for(graph, 44);
    FitOptions options{.batch = 8, .steps = 20, .shuffle = 7};
    Session steps(graph, Single{.threads = 1}, {.seed = 5});
    const History expected = fit(steps, data, options);
    Session loops(graph, ParameterServer{.devices = {cpu(0)}, .staleness = 0, .threads = 1}, {.seed = 5});
    options.checkpoints = testing::TempDir() + "belfry_parameter_server_test";
    options.checkpoint_every = 7;  // the loops end there and go on
    const History seen = fit(loops, data, options);
    std::filesystem::remove_all(options.checkpoints);
    EXPECT_EQ(loops.state(), steps.state()) << graph.name;
    EXPECT_EQ(loops.data_progress, steps.data_progress) << graph.name;
    ASSERT_EQ(seen.size(), expected.size());
    EXPECT_EQ(seen.back().metrics, expected.back().metrics) << graph.name;
    EXPECT_EQ(seen.back().loops->updates, 20);
    EXPECT_THAT(seen.back().loops->staleness, ElementsAre(20));
  };
  check(all_together());
  for (const char* name : {"lamb", "embedding", "decay", "batch_norm_sync"}) check(with_metrics_of_one_number(built(name)));
}

TEST(ParameterServer, a_gradient_is_never_staler_than_the_bound) {
  // The first worker keeps what it pulled at version 0, and the others go on until one has pulled version 4.
  const Graph graph = line();
  const DataSet data = on_a_line(40);
  Session session(graph, ParameterServer{.devices = parse_devices("cpu:0"), .staleness = 4, .towers = 3, .threads = 1});
  const float before = session.run(data.columns, {"loss"}).item<float>("loss");
  Gate pulled, fourth;
  std::atomic<bool> first = true;
  TrainingLoops loops(session, {.rows = 4, .fetches = {"loss", "learning_rate"}, .before = [&](int worker, std::int64_t version) {
                                  if (version == 4) fourth.open();
                                  if (worker == 0) pulled.open();
                                  pulled.pass();
                                  if (worker == 0 && first.exchange(false)) fourth.pass();
                                }});
  std::int64_t steps = 0;
  loops.run(batches_of(data, 4), 300, [&](const std::vector<Applied>& gradients) {
    ASSERT_EQ(gradients.size(), 1u);
    EXPECT_LE(gradients[0].staleness, 4);
    EXPECT_EQ(gradients[0].results.item<float>("learning_rate"), 0.1f);
    ++steps;
  });
  EXPECT_EQ(steps, 300);
  EXPECT_EQ(session.variable("step").item<std::int64_t>(), 300);
  EXPECT_EQ(loops.counts().most_staleness(), 4) << loops.counts().text();
  EXPECT_EQ(loops.counts().dropped, 0);
  EXPECT_LT(session.run(data.columns, {"loss"}).item<float>("loss"), before / 1000);
}

TEST(ParameterServer, both_plans_are_files) {
  Session session(all_together(), ParameterServer{.devices = parse_devices("cpu:0,sim:0"), .servers = parse_devices("cpu:0,cpu:1"), .staleness = 1, .threads = 1});
  TrainingLoops loops(session, {.rows = 4, .fetches = {"loss"}});
  for (const PlacedGraph& plan : {loops.worker_plan(4), loops.server_plan()}) {
    const PlacedGraph read = read_plan(write_plan(plan), "plan.json", standard_library()->ops);
    EXPECT_EQ(read.arithmetic_hash, arithmetic_hash(read));
    EXPECT_THAT(verify(read), testing::IsEmpty());
  }
}

TEST(VersionedStore, takes_first_what_would_become_too_stale) {
  VersionedStore store({.workers = 2, .staleness = 1, .steps = kMany}, nullptr, batches(3));
  auto slow = store.pull(0), quick = store.pull(1);
  store.push({1, quick->version, quick->draw, 1, {}});
  EXPECT_EQ(store.take().at(0).worker, 1);
  store.commit(nullptr);
  quick = store.pull(1);
  EXPECT_EQ(quick->version, 1);
  store.push({1, quick->version, quick->draw, 1, {}});  // applied now, it would leave the other 2 behind
  store.push({0, slow->version, slow->draw, 1, {}});
  EXPECT_EQ(store.take().at(0).worker, 0);
  store.commit(nullptr);
  EXPECT_EQ(store.take().at(0).worker, 1);
  store.commit(nullptr);
  EXPECT_FALSE(store.pull(0));
  EXPECT_TRUE(store.take().empty());
}

// ---------------------------------------------------------------- backup workers

TEST(ParameterServer, late_gradients_of_backup_workers_are_dropped_and_counted) {
  const Graph graph = line();
  const DataSet data = on_a_line(24);
  const ParameterServer strategy{.devices = parse_devices("cpu:0"), .backup = 1, .towers = 3, .threads = 1};
  Session session(graph, strategy, {.seed = 2}), two(graph, Single{.towers = 2, .threads = 1}, {.seed = 2});
  Gate next;
  TrainingLoops loops(session, {.rows = 4, .fetches = {"loss"}, .before = [&](int worker, std::int64_t version) {
                                  if (version == 1 && worker != 2) next.open();
                                  if (version == 0 && worker == 2) next.pass();
                                }});
  std::int64_t steps = 0;
  // Whichever rows they have drawn: all mini-batches are the same here.
  const DataSet same = data.slice(0, 4);
  loops.run(batches_of(same, 4), 6, [&](const std::vector<Applied>& gradients) {
    ASSERT_EQ(gradients.size(), 2u);
    for (const Applied& g : gradients) EXPECT_EQ(g.staleness, 0);
    ++steps;
  });
  EXPECT_EQ(steps, 6);
  EXPECT_GE(loops.counts().dropped, 1);
  NamedTensors twice;
  for (const auto& [name, t] : same.columns) {
    HostTensor both(t.dtype(), {8, t.shape()[1]});
    std::memcpy(both.raw(), t.raw(), t.bytes().size());
    std::memcpy(both.raw() + t.bytes().size(), t.raw(), t.bytes().size());
    twice.emplace(name, std::move(both));
  }
  for (int k = 0; k < 6; ++k) two.step(twice);
  EXPECT_EQ(session.state(), two.state());  // the mean of two gradients is that of two towers
}

TEST(VersionedStore, at_the_end_of_the_data_waits_for_no_more_than_are_under_way) {
  VersionedStore store({.workers = 3, .backup = 1, .steps = kMany}, nullptr, batches(4));
  auto a = store.pull(0), b = store.pull(1), late = store.pull(2);
  store.push({1, 0, b->draw, 1, {}});
  store.push({0, 0, a->draw, 1, {}});
  const std::vector<Pushed> first = store.take();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].worker, 0);  // joined in the workers' order, whoever came first
  store.commit(nullptr);
  a = store.pull(0);
  EXPECT_FALSE(store.pull(1));
  store.push({2, 0, late->draw, 1, {}});
  store.push({0, 1, a->draw, 1, {}});
  EXPECT_EQ(store.take().size(), 1u);
  store.commit(nullptr);
  EXPECT_EQ(store.dropped(), 1);
  EXPECT_TRUE(store.take().empty());
}

// ---------------------------------------------------------------- errors

TEST(ParameterServer, a_failing_worker_ends_all_with_its_node) {
  const Graph graph = with_metrics_of_one_number(built("embedding"));
  DataSet data = rows_for(graph, 32);
  data.columns.at("ids").data<std::int32_t>()[60] = 999;
  for (int backup : {0, 1}) {
    ParameterServer strategy{.devices = parse_devices("cpu:0"), .backup = backup, .towers = 3, .threads = 1};
    if (!backup) strategy.staleness = 0;  // two workers wait to be let in
    Session session(graph, strategy);
    EXPECT_TRUE(says([&] { fit(session, data, {.batch = 12, .epochs = 2}); }, {"999", "while running '", "on cpu:0"}));
    EXPECT_GT(session.variable("step").item<std::int64_t>(), 0);  // what was applied stays
    EXPECT_FALSE(session.predict(data.slice(0, 4).columns, {"loss"}).all().empty());
  }
}

TEST(ParameterServer, workers_that_get_no_threads_are_told_with_a_way_out) {
  Session session(line(), ParameterServer{.devices = parse_devices("cpu:0,cpu:1"), .staleness = 1, .threads = 1});
  const FitOptions options{.batch = 8, .epochs = 1};
  fit(session, on_a_line(64), options);
  const std::int64_t before = session.variable("step").item<std::int64_t>();
  {
    const NoThreads none;
    EXPECT_TRUE(says<UserError>([&] { fit(session, on_a_line(64), options); }, {"workers this process gets 0", "ulimit -u", "fewer workers"}));
  }
  EXPECT_EQ(session.variable("step").item<std::int64_t>(), before);
  fit(session, on_a_line(64), options);
  EXPECT_GT(session.variable("step").item<std::int64_t>(), before);
}

TEST(ParameterServer, what_a_caller_throws_ends_the_loops) {
  struct Stop {};
  Session session(line(), ParameterServer{.devices = parse_devices("cpu:0,cpu:1"), .staleness = 1, .threads = 1});
  FitOptions options{.batch = 8, .epochs = 5};
  options.on_batch = [](const Progress& p) {
    EXPECT_TRUE(p.last.contains("staleness"));
    if (p.step == 3) throw Stop{};
  };
  EXPECT_THROW(fit(session, on_a_line(64), options), Stop);
  EXPECT_EQ(session.variable("step").item<std::int64_t>(), 3);
}

TEST(ParameterServer, a_training_that_is_told_to_end_applies_what_was_handed_out_and_reads_no_more) {
  const DataSet data = on_a_line(400);
  for (const int backup : {0, 1}) {
    Session session(line(), ParameterServer{.devices = parse_devices("sim:0-3"), .servers = {cpu(0)}, .staleness = backup ? std::nullopt : std::optional(2), .backup = backup});
    std::atomic<int> steps = 0;
    FitOptions options{.batch = 8, .epochs = 5};
    options.on_batch = [&](const Progress&) { ++steps; };
    options.ends = [&] { return steps >= 7; };
    const History history = fit(session, data, options);
    ASSERT_EQ(history.size(), 1u);
    EXPECT_GE(steps, 7);
    EXPECT_LE(steps, 7 + 4);
    EXPECT_EQ(session.data_progress.steps, steps);
    EXPECT_EQ(session.data_progress.epoch, 0);
    std::int64_t gradients = history[0].loops->dropped;
    for (std::int64_t n : history[0].loops->staleness) gradients += n;
    EXPECT_EQ(session.data_progress.position, 2 * gradients) << "two rows a gradient";
  }
}

TEST(ParameterServer, loops_refuse_draws_that_repeat) {
  auto dropped_by = [](const std::function<Value(Builder&)>& step) {
    Builder b("dropped");
    b.minimize(identity(mean(dropout(b.input("x", f32, {kBatch, 3}) * b.variable("w", {3}), b.seed(), step(b), 0.5, "drop")), "loss"), Sgd{});
    return std::move(b).build();
  };
  const auto devices = parse_devices("cpu:0,cpu:1");
  for (const ParameterServer& strategy : {ParameterServer{.devices = devices, .staleness = 0, .threads = 1}, ParameterServer{.devices = devices, .staleness = 1, .threads = 1},
                                          ParameterServer{.devices = devices, .backup = 1, .threads = 1}}) {
    Session still(dropped_by([](Builder& b) { return b.variable("clock", {}, {.dtype = i64, .trainable = false}); }), strategy);
    EXPECT_TRUE(says([&] { TrainingLoops(still, {}); }, {"node 'drop'", "the variable 'clock', which nothing updates", "would draw the same in each step"}));
    Session counted(dropped_by([](Builder& b) { return b.step(); }), strategy);  // in a worker's graph nothing updates it
    TrainingLoops(counted, {.rows = 2, .fetches = {"loss"}});
  }
}

TEST(ParameterServer, refuses_what_loops_cannot_do) {
  const DataSet data = on_a_line(12);
  const auto devices = parse_devices("cpu:0,cpu:1");
  EXPECT_TRUE(says([&] { to_strategy(ParameterServer{.devices = devices, .staleness = 2, .backup = 1}); }, {"one of the two"}));
  EXPECT_TRUE(says([&] { to_strategy(ParameterServer{.devices = devices, .backup = 2}); }, {"2 of 2 workers", "give -O backup=1 or less", "--towers"}));
  Builder b("untrained");
  b.output(b.input("x", f32, {kBatch, 2}) * b.variable("w", {2}));
  Session untrained(std::move(b).build(), ParameterServer{.devices = devices, .staleness = 2, .threads = 1});
  EXPECT_TRUE(says([&] { TrainingLoops(untrained, {}); }, {"'untrained' has no updates", "give it an optimizer", "or leave these options out"}));
  Session session(line(), ParameterServer{.devices = devices, .staleness = 2, .threads = 1});
  EXPECT_TRUE(says([&] { session.step(data.columns); }, {"parameter_server", "fit and belfry train run loops"}));
  session.run(data.columns);  // is no step
  EXPECT_TRUE(says([&] { fit(session, data, {.batch = 5}); }, {"5 rows", "2 workers"}));
  Session ordinary(line());
  EXPECT_TRUE(says([&] { TrainingLoops(ordinary, {}); }, {"'single' has no loops"}));
  TrainingLoops roomy(session, {.rows = 6, .fetches = {"loss"}});
  const auto bytes = [](const PlacedGraph& plan) {
    std::int64_t out = 0;
    for (const DeviceBytes& b : device_bytes(plan)) out += b.total();
    return out;
  };
  SessionOptions small;
  small.cluster = local_cluster(devices, 2, std::max(bytes(roomy.worker_plan(6)), bytes(roomy.server_plan())) * 3 / 2);  // each plan fits, and what fit fetches besides; all together do not
  Session tight(line(), ParameterServer{.devices = devices, .staleness = 2, .threads = 1}, small);
  EXPECT_TRUE(says([&] { fit(tight, data, {.batch = 12}); }, {"the loops do not fit", "host"}));
}

}  // namespace
}  // namespace belfry::test
