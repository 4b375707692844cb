#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include <belfry/belfry.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/ops/random/random.h>

#include "nets.h"
#include "ran_as_planned.h"
#include "says.h"

namespace belfry::test {
namespace {

State after(Session& session, const Graph& graph, std::int64_t batch, int steps) {
  session.set_trace(true);
  for (int k = 0; k < steps; ++k) {
    auto feeds = feeds_for(graph, batch, static_cast<std::uint64_t>(k));
    session.step(feeds);
  }
  EXPECT_RAN_AS_PLANNED(session);
  return session.state();
}

TEST(Session, the_same_towers_give_the_same_bits_on_any_devices) {
  for (const char* name : {"decay", "batch_norm", "batch_norm_sync", "dropout", "embedding", "contrastive", "weighted_mean", "tied"}) {
    Graph graph = built(name);
    Session one(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 4, .threads = 1});
    State want = after(one, graph, 10, 5);
    for (const char* devices : {"cpu:0,cpu:1", "cpu:0-3", "sim:0-3"}) {
      Session other(graph, Towers{.devices = parse_devices(devices), .towers = 4, .threads = 1});
      EXPECT_EQ(after(other, graph, 10, 5), want) << name << " on " << devices;
      Session mirrored(graph, Mirrored{.devices = parse_devices(devices), .towers = 4, .threads = 1});
      EXPECT_EQ(after(mirrored, graph, 10, 5), want) << name << " mirrored on " << devices;
    }
  }
}

TEST(Session, run_and_predict_change_no_state) {
  Graph graph = built("batch_norm");
  Session session(graph, Towers{.devices = parse_devices("cpu:0,cpu:1")});
  after(session, graph, 6, 2);
  State before = session.state();
  auto feeds = feeds_for(graph, 6);
  Results trained = session.run(feeds, {"loss", "normalised"}), inferred = session.predict(feeds, {"normalised"});
  EXPECT_EQ(session.state(), before);
  EXPECT_FALSE(trained["normalised"] == inferred["normalised"]);
}

template <class T>
concept GivesData = requires(T&& t) { std::forward<T>(t).template data<float>(); };
static_assert(GivesData<HostTensor&> && GivesData<const HostTensor&>);
static_assert(!GivesData<HostTensor> && !GivesData<const HostTensor>, "a view of a tensor that is gone");

TEST(Batch, keeps_tensors_that_are_given_as_they_go) {
  Graph graph = built("batch_norm");
  Session session(graph, Single{});
  const auto feeds = feeds_for(graph, 6);
  const Batch made = feeds_for(graph, 6);
  ASSERT_EQ(made.all().size(), feeds.size());
  for (const auto& [name, tensor] : made.all()) EXPECT_EQ(*tensor, feeds.at(name));
  EXPECT_EQ(session.run(made).all(), session.run(feeds).all());
  auto ones = [] { return HostTensor::of<float>({40}, std::vector<float>(40, 1)); };
  const HostTensor lasting = ones();
  const Batch written = {{"gone", ones()}, {"lasting", lasting}};
  const Batch copy = written;  // NOLINT(performance-unnecessary-copy-initialization): what is tested
  EXPECT_EQ(*written.all().at("gone"), lasting);
  EXPECT_EQ(copy.all().at("gone"), written.all().at("gone"));
  EXPECT_EQ(written.all().at("lasting"), &lasting);
}

TEST(Session, refuses_a_second_thread_while_one_is_inside) {
  Graph graph = built("batch_norm");
  Session session(graph, Single{});
  const auto feeds = feeds_for(graph, 6);
  session.run(feeds);
  std::atomic<int> refused{0};
  auto call = [&] {
    for (int k = 0; k < 100000 && !refused; ++k) try {
        session.run(feeds);
      } catch (const UserError& e) {
        EXPECT_THAT(e.what(), testing::HasSubstr("at work in another thread"));
        ++refused;
      }
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_GT(refused, 0);
  EXPECT_NO_THROW(session.run(feeds));
}

TEST(Session, whose_threads_began_is_refused_in_a_fork) {
  const Graph graph = built("batch_norm");
  auto session = std::make_unique<Session>(graph, Single{.threads = 1});
  const auto feeds = feeds_for(graph, 6);
  session->run(feeds);
  const pid_t child = ::fork();
  if (!child) {
    ::alarm(60);
    bool refused = says([&] { session->run(feeds); }, {"make a Session after fork()"}) && says([&] { session->prepare({3}); }, {"make a Session after fork()"});
    session.reset();  // joins nobody
    ::_exit(refused ? 7 : 8);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_NO_THROW(session->run(feeds));
}

TEST(Session, refuses_strategies_without_devices_or_functions) {
  Graph graph = built("batch_norm");
  auto message = [&](Session session) { return message_of([&] { session.plan(4); }); };
  EXPECT_THAT(message(Session(graph, Towers{})), testing::HasSubstr("makes 0 towers: give it devices"));
  EXPECT_THAT(message(Session(graph, Mirrored{})), testing::HasSubstr("makes 0 towers: give it devices"));
  EXPECT_THAT(message(Session(graph, Single{.threads = -3})), testing::HasSubstr("has -3 threads a tower"));
  Strategy nothing;
  nothing.devices = parse_devices("cpu:0");
  EXPECT_THAT(message(Session(graph, nothing)), testing::HasSubstr("a strategy without divide and assign: write Towers{"));
}

TEST(Session, an_uneven_batch_and_another_batch_share_one_state) {
  Graph graph = built("accuracy");
  Session session(graph, Towers{.devices = parse_devices("cpu:0,cpu:1"), .towers = 4});
  session.set_trace(true);
  for (std::int64_t batch : {8, 7, 2, 8}) {
    session.step(feeds_for(graph, batch));
    EXPECT_RAN_AS_PLANNED(session);
  }
  EXPECT_EQ(session.variable("step").item<std::int64_t>(), 4);
}

TEST(Session, each_of_its_programs_allocates_what_is_planned) {
  Graph graph = built("accuracy");
  for (const Strategy& s : {to_strategy(Mirrored{.devices = parse_devices("sim:0-1"), .towers = 4, .threads = 1}), to_strategy(Layers{.devices = parse_devices("sim:0-1"), .towers = 3, .order = PhaseOrder::one_f_one_b, .threads = 1}),
                            to_strategy(Layers{.devices = parse_devices("cpu:0,cpu:1"), .towers = 4, .order = PhaseOrder::gpipe, .threads = 1})}) {
    Session session(graph, s);
    session.set_trace(true);
    for (std::int64_t batch : {8, 7, 2, 8}) {
      session.step(feeds_for(graph, batch));
      EXPECT_RAN_AS_PLANNED(session);
    }
    session.run(feeds_for(graph, 8), {"loss"});
    EXPECT_RAN_AS_PLANNED(session);
  }
}

TEST(Session, keeps_each_variable_once_for_all_its_programs) {
  Graph graph = built("batch_norm");
  Session session(graph, Mirrored{.devices = parse_devices("cpu:0,sim:0"), .towers = 2});
  std::map<std::pair<std::string, int>, const std::byte*> places;
  auto check = [&] {
    const Program& p = *session.last_program();
    for (const StateBuffer& s : p.bound().state) {
      auto [at, fresh] = places.try_emplace({p.plan().nodes[static_cast<std::size_t>(s.node)].name, s.device}, p.address(s.buffer));
      EXPECT_EQ(at->second, p.address(s.buffer)) << at->first.first;
    }
  };
  for (std::int64_t batch : {8, 4, 8}) {
    session.step(feeds_for(graph, batch));
    check();
    session.predict(feeds_for(graph, batch), {"normalised"});
    check();
  }
  EXPECT_EQ(session.variable("step").item<std::int64_t>(), 3);
  State once = session.state();
  session.load_state(once);
  session.step(feeds_for(graph, 4));
  State after_step = session.state();
  session.load_state(once);
  session.step(feeds_for(graph, 4));
  EXPECT_EQ(session.state(), after_step);
}

TEST(Session, the_loss_falls) {
  Graph graph = built("accuracy");
  Session session(graph, Towers{.devices = parse_devices("cpu:0,cpu:1")});
  auto feeds = feeds_for(graph, 12);
  float first = session.run(feeds, {"loss"}).item<float>("loss");
  for (int k = 0; k < 50; ++k) session.step(feeds);
  EXPECT_LT(session.run(feeds, {"loss"}).item<float>("loss"), first / 2);
}

TEST(Session, what_each_tower_has_can_be_fetched) {
  Graph graph = built("accuracy", f64);
  Session session(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 3});
  auto feeds = feeds_for(graph, 7);
  session.set_trace(true);
  Results r = session.run(feeds, {"loss", "loss@towers", "gradient/in/w", "gradient/in/w@towers"});
  ASSERT_EQ(r["loss@towers"].shape(), Extents{3});
  auto parts = r.data<double>("loss@towers");
  EXPECT_NEAR(parts[0] + parts[1] + parts[2], r.item<double>("loss"), 1e-12);
  EXPECT_EQ(r["gradient/in/w@towers"].shape(), (Extents{3, 4, 6}));
  EXPECT_RAN_AS_PLANNED(session);
}

TEST(Session, bad_feeds_are_refused_by_name) {
  Graph graph = built("accuracy");
  Session session(graph);
  auto feeds = feeds_for(graph, 4);
  auto without = feeds;
  without.erase("label");
  EXPECT_THAT(message_of([&] { session.step(without); }), testing::HasSubstr("no feed for the input 'label'"));
  auto other = feeds;
  other.insert_or_assign("x", HostTensor(f32, {4, 5}));
  EXPECT_THAT(message_of([&] { session.step(other); }), testing::HasSubstr("'x' is f32(4, 5), but the input is f32(batch, 4)"));
  other.insert_or_assign("x", HostTensor(f32, {3, 4}));
  EXPECT_THAT(message_of([&] { session.step(other); }), testing::HasSubstr("disagree"));
  EXPECT_THAT(message_of([&] { session.step(feeds_for(graph, 0)); }), testing::HasSubstr("at least one"));
  EXPECT_THAT(message_of([&] { session.run(feeds, {"los"}); }), testing::HasSubstr("loss"));
}

TEST(Session, a_bad_label_fails_the_step_and_leaves_the_state) {
  Graph graph = built("accuracy");
  Session session(graph, Towers{.devices = parse_devices("cpu:0,cpu:1")});
  auto feeds = feeds_for(graph, 4);
  session.step(feeds);
  State before = session.state();
  auto bad = feeds;
  bad.at("label").data<std::int32_t>()[3] = 9;
  EXPECT_THAT(message_of([&] { session.step(bad); }), testing::HasSubstr("label 9 of row 3 is no class"));
  EXPECT_EQ(session.state(), before);
  session.step(feeds);
}

/// The standard library with a momentum kernel that throws at its n-th launch once `countdown` is set.
std::shared_ptr<const Library> failing_at(const std::shared_ptr<int>& countdown) {
  auto library = std::make_shared<Library>(*standard_library());
  KernelTable table;
  table.add({"failing_momentum", "momentum", [](const KernelRequest&) { return Support{}; },
             [countdown](const KernelRequest& r) {
               std::shared_ptr<Prepared> real = KernelTable{}.prepare(kReferenceKernel, r);
               return prepared([real, countdown](const Arguments& a) {
                 if (*countdown > 0 && --*countdown == 0) throw DeviceError("the device is lost");
                 real->launch(a);
               });
             }});
  library->kernels["cpu"] = table;
  return library;
}

TEST(Session, a_torn_state_is_refused_until_it_is_loaded_or_reset) {
  Graph graph = built("accuracy");
  auto countdown = std::make_shared<int>(0);
  Session session(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 2, .threads = 1}, {.library = failing_at(countdown)});
  auto feeds = feeds_for(graph, 6);
  session.step(feeds);
  State before = session.state();
  *countdown = 2;  // the second update of four
  try {
    session.step(feeds);
    FAIL() << "the step goes through";
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("the device is lost; while running 'momentum/"));
  }
  EXPECT_THAT(message_of([&] { session.step(feeds); }), testing::AllOf(testing::HasSubstr("partly updated"), testing::HasSubstr("momentum_m/")));
  session.load_state(before);
  session.step(feeds);
  *countdown = 3;
  EXPECT_THROW(session.step(feeds), DeviceError);
  session.reset();
  session.step(feeds);
  EXPECT_EQ(session.variable("step").item<std::int64_t>(), 1);
}

TEST(Session, a_torn_state_stays_torn_after_a_run_that_fails) {
  Graph graph = built("accuracy");
  auto countdown = std::make_shared<int>(0);
  Session session(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 2, .threads = 1}, {.library = failing_at(countdown)});
  auto feeds = feeds_for(graph, 6), bad = feeds;
  bad.at("label").data<std::int32_t>()[3] = 9;
  *countdown = 2;
  EXPECT_THROW(session.step(feeds), DeviceError);
  EXPECT_EQ(session.state_after(), StateAfter::torn);
  EXPECT_THAT(message_of([&] { session.run(bad); }), testing::HasSubstr("label 9"));
  EXPECT_THAT(message_of([&] { session.predict(bad, {"loss"}); }), testing::HasSubstr("label 9"));
  EXPECT_THAT(message_of([&] { session.step(feeds); }), testing::HasSubstr("partly updated"));
}

Session with_memory(const Graph& graph, const std::string& devices, std::int64_t bytes) {
  SessionOptions options;
  options.cluster = local_cluster(parse_devices(devices), 2, bytes);
  return Session(graph, Towers{.devices = parse_devices(devices), .threads = 1}, options);
}

TEST(Session, a_plan_is_made_without_the_memory_that_it_needs) {
  Graph graph = built("accuracy");
  Session session = with_memory(graph, "sim:0-1", std::int64_t{1} << 60);
  const PlacedGraph& plan = session.plan(std::int64_t{1} << 38);
  EXPECT_EQ(plan.batch, std::int64_t{1} << 38);
  EXPECT_THAT(message_of([&] { session.last_program(); }), testing::HasSubstr("no program"));
  EXPECT_THAT(message_of([&] { session.prepare({std::int64_t{1} << 38}); }), testing::AllOf(testing::HasSubstr("this host has"), testing::HasSubstr("what would fit is named")));
}

TEST(Session, refuses_devices_that_are_one) {
  SessionOptions options;
  options.cluster = local_cluster(parse_devices("cpu:0,gpu:0/0,gpu:0/1"), 2);
  options.cluster->devices.push_back({parse_device("gpu:0"), "gpu:0"});
  EXPECT_THAT(message_of([&] { Session(built("accuracy"), Single{}, options); }), testing::HasSubstr("gpu:0 and its slice gpu:0/0 are one GPU"));
  EXPECT_THAT(message_of([&] { Session(built("accuracy"), Towers{.devices = {cpu(0), cpu(0)}}); }), testing::HasSubstr("device cpu:0 is named twice"));
}

TEST(Session, draws_initial_values_where_a_run_needs_them_and_not_to_plan) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 28;
  auto most = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return std::int64_t{usage.ru_maxrss} * 1024;
  };
  Builder b("large");
  Value large = b.variable("large", {kBytes / 4}, {.init = "ones"}), small = b.variable("small", {3}, {.init = "normal", .init_value = 1.0});
  Value y = b.input("x", f32, {kBatch, 3}) * small;
  b.output(y);
  b.output(reduce_sum(large));
  const std::string fetched = y.name();
  std::int64_t before = most();
  Session session(std::move(b).build(), {.seed = 7});
  session.plan(4);
  std::map<std::string, HostTensor> feeds = {{"x", HostTensor(f32, {2, 3})}};
  session.run(feeds, {fetched});
  session.load_state({{"small", HostTensor(f32, {3})}});
  EXPECT_LT(most() - before, kBytes / 2);
  session.reset();
  EXPECT_EQ(session.variable("small"), initial_value(session.training_graph().node(session.training_graph().find_node("small")), 7));
}

TEST(Session, programs_that_do_not_fit_beside_each_other_take_turns) {
  auto feeds = [](std::int64_t rows) { return std::map<std::string, HostTensor>{{"x", HostTensor(f32, {rows, 256})}}; };
  for (const bool roomy : {true, false}) {
    Builder b("wide");
    Value y = relu(b.input("x", f32, {kBatch, 256}) * 2.0) + b.variable("shift", {256}, {.init = "ones"});
    b.minimize(reduce_mean(square(y)), Sgd{.learning_rate = 0.1});
    const Graph graph = std::move(b).build();
    Session alone(graph, Single{});
    std::int64_t needed = 0;
    for (const DeviceBytes& d : device_bytes(alone.plan(64))) needed += d.total();
    SessionOptions options;
    options.cluster = local_cluster({cpu(0)}, 1);
    options.cluster->devices[0].memory = roomy ? 3 * needed : needed + needed / 4;
    Session session(graph, Single{}, options);
    session.step(feeds(64));
    const std::weak_ptr<const Program> first = session.last_program();
    session.step(feeds(48));
    EXPECT_EQ(first.expired(), !roomy);
    session.step(feeds(64));
    for (std::int64_t rows : {64, 48, 64}) alone.step(feeds(rows));
    EXPECT_EQ(session.variable("shift"), alone.variable("shift"));
  }
}

TEST(Session, cpu_and_sim_devices_share_the_memory_of_their_host) {
  Graph graph = built("accuracy");
  Session enough = with_memory(graph, "sim:0-1", std::int64_t{1} << 30);
  std::int64_t needed = 0, largest = 0;
  const PlacedGraph& plan = enough.plan(64);
  for (const DeviceBytes& b : device_bytes(plan)) {
    needed += b.total();
    largest = std::max(largest, b.total());
  }
  ASSERT_LT(largest, needed - 64);
  with_memory(graph, "sim:0-1", needed).plan(64);
  Session less = with_memory(graph, "sim:0-1", needed - 64);
  EXPECT_THAT(message_of([&] { less.plan(64); }), testing::AllOf(testing::HasSubstr(std::to_string(needed)), testing::HasSubstr(std::to_string(needed - 64)), testing::HasSubstr("of sim:1"),
                                                               testing::HasSubstr("most is held on sim:"), testing::HasSubstr("--batch 32")));
  less.plan(32);
  SessionOptions small;
  small.cluster = local_cluster(parse_devices("sim:0-1"), 2);
  small.cluster->devices[1].memory = 64;
  Session one(graph, Towers{.devices = parse_devices("sim:0-1"), .threads = 1}, small);
  EXPECT_THAT(message_of([&] { one.plan(64); }), testing::AllOf(testing::HasSubstr("sim:1 needs"), testing::HasSubstr("but has 64")));
  EXPECT_FALSE(Session(graph).plan(8).cluster.host_memory.empty());
}

TEST(Session, rules_that_decide_nothing_are_refused_whatever_runs_first) {
  Graph graph = built("accuracy");
  auto feeds = feeds_for(graph, 6);
  for (const char* match : {"nonsense", "x"})
    for (int mode = 0; mode < 3; ++mode) {
      Session session(graph, Towers{.devices = parse_devices("cpu:0,cpu:1")}, {.rules = {{match, {cpu(1)}, "by hand"}}});
      EXPECT_THAT(message_of([&] { mode == 0 ? session.step(feeds) : mode == 1 ? session.run(feeds, {"loss"}) : session.predict(feeds, {"loss"}); }), testing::HasSubstr(match));
    }
  // A rule for what only a step has is none that decides nothing.
  Session session(graph, Towers{.devices = parse_devices("cpu:0,cpu:1")}, {.rules = {{"momentum/in/w", {cpu(0)}, "by hand"}}});
  session.predict(feeds, {"loss"});
  session.run(feeds, {"loss"});
}

}  // namespace
}  // namespace belfry::test
