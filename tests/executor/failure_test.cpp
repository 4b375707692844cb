#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <iostream>
#include <limits>
#include <utility>

#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/structural.h>

#include "plans.h"

namespace belfry::test {
namespace {

struct Injected : std::runtime_error {
  Injected() : std::runtime_error("injected") {}
};

/// A prepared plan with its first state, and what the tower interpreter makes of one step.
class Bench {
 public:
  Bench(Graph graph, const Strategy& strategy, int T, std::int64_t batch, const Cluster& cluster, const KernelTables& kernels = reference_kernels())
      : graph_(std::make_shared<const Graph>(std::move(graph))),
        program(std::make_shared<const PlacedGraph>(place(graph_, strategy, cluster, batch, {.fetches = fetches_of(*graph_), .kernels = chooser(kernels)})), kernels) {
    auto found = verify(program.plan());
    EXPECT_TRUE(found.empty()) << found[0];
    for (int t = 0; t < static_cast<int>(program.threads().size()); ++t) program.prepare_thread(t);
    start = state_for(*graph_);
    feeds = feeds_for(*graph_, batch);
    TowerGraph tg = expand(graph_, {.towers = T, .batch = batch, .threads = 1, .fetches = fetches_of(*graph_)});
    want = run_towers(tg, feeds, start);
  }

  void reset() {
    for (const auto& [name, value] : start) program.set_state(name, value);
  }

  /// The report is the truth: old where nothing has begun, new where all is done, and every variable not named is old.
  void expect_true(const Outcome& o, const std::string& where, bool named_are_new = false) {
    for (const StateBuffer& s : program.bound().state) {
      const std::string& name = program.plan().nodes[static_cast<std::size_t>(s.node)].name;
      bool old = holds(s, start.at(name)), fresh = holds(s, want.state.at(name));
      bool named = std::count(o.torn.begin(), o.torn.end(), name) > 0;
      bool right = o.state == StateAfter::complete ? fresh : !named ? old : !named_are_new || old || fresh;
      EXPECT_TRUE(right) << where << ": " << to_string(o.state) << ", but " << name << " is " << (old ? "old" : fresh ? "new" : "neither old nor new");
    }
    EXPECT_EQ(o.torn.empty(), o.state != StateAfter::torn) << where;
    if (!named_are_new) return;
    // A failure before a kernel leaves no update half done: some holder of every named variable has it anew.
    for (const std::string& name : o.torn)
      EXPECT_TRUE(std::any_of(program.bound().state.begin(), program.bound().state.end(), [&](const StateBuffer& s) {
        return program.plan().nodes[static_cast<std::size_t>(s.node)].name == name && holds(s, want.state.at(name));
      })) << where << ": " << name << " is named, but old everywhere";
  }

  void expect_right(const Outcome& o, const std::string& where) {
    ASSERT_FALSE(o.error) << where;
    EXPECT_EQ(o.state, StateAfter::complete) << where;
    for (const auto& [name, value] : want.fetched) EXPECT_TRUE(o.fetched.at(name) == value) << where << " fetch " << name;
    expect_true(o, where);
  }

 private:
  bool holds(const StateBuffer& s, const HostTensor& value) { return std::memcmp(program.address(s.buffer), value.raw(), static_cast<std::size_t>(s.buffer.bytes)) == 0; }
  std::shared_ptr<const Graph> graph_;

 public:
  Program program;
  Tensors start, feeds;
  Result want;
};

Strategy of(const std::string& name, int T, int n) {
  for (NamedStrategy& s : strategies(T, n))
    if (s.name == name) return s.strategy;
  throw InternalError("no strategy " + name);
}

RunOptions failing_at(const Step& victim) {
  return {.before = [&victim](const Step& s) {
    if (&s == &victim) throw Injected();
  }};
}

void expect_injected(const Outcome& o, const Program& program, const Step& victim) {
  ASSERT_TRUE(o.error);
  EXPECT_THROW(std::rethrow_exception(o.error), Injected);
  EXPECT_EQ(o.failed_node, program.plan().nodes[static_cast<std::size_t>(victim.node)].name);
}

class FailureIn : public testing::TestWithParam<std::string> {};

TEST_P(FailureIn, every_step_is_reported_as_it_is_under_any_interleaving_and_with_threads) {
  Bench bench(training_graph(net("accuracy")), of(GetParam(), 2, 2), 2, 4, sim_cluster(2));
  Runner runner(bench.program);
  std::map<std::string, int> seen;
  auto judge = [&](const Outcome& o, const Step& victim, const std::string& where) {
    expect_injected(o, bench.program, victim);
    bench.expect_true(o, where, true);
    ++seen[to_string(o.state)];
  };
  for (const auto& stream : bench.program.bound().streams)
    for (const Step& victim : stream) {
      std::string where = GetParam() + ", at '" + bench.program.plan().nodes[static_cast<std::size_t>(victim.node)].name + "'";
      std::vector<Chooser> choosers = {in_turn(), starving(0), starving(static_cast<int>(bench.program.bound().streams.size()) - 1)};
      for (std::uint64_t seed = 0; seed < 4; ++seed) choosers.push_back(at_random(seed));
      for (Chooser& choose : choosers) {
        bench.reset();
        judge(runner.run_interleaved(views(bench.feeds), choose, nullptr, failing_at(victim)), victim, where);
      }
      for (int k = 0; k < 3; ++k) {
        bench.reset();
        judge(runner.run(views(bench.feeds), failing_at(victim)), victim, where + " with threads");
      }
    }
  // The runner goes on: what a torn step means for a session is the session's business.
  bench.reset();
  bench.expect_right(runner.run(views(bench.feeds)), "after all failures");
  for (const auto& [state, count] : seen) std::cout << GetParam() << ": " << count << " " << state << "\n";
  EXPECT_GT(seen["untouched"], 0);
  EXPECT_GT(seen["torn"], 0);
  // With one holder of the state the last update ends the step; with several, a result may fail behind it.
  if (GetParam() == "mirrored") {
    EXPECT_GT(seen["complete"], 0);
  }
}
INSTANTIATE_TEST_SUITE_P(Strategies, FailureIn, testing::Values("towers", "mirrored"), [](const auto& info) { return info.param; });

/// A momentum kernel that throws at its n-th launch, before or in the middle of writing.
KernelTables throwing(std::atomic<int>& countdown, bool midway) {
  KernelTable table;
  table.add({"throwing_momentum", "momentum", [](const KernelRequest&) { return Support{}; },
             [&countdown, midway](const KernelRequest& r) -> std::unique_ptr<Prepared> {
               auto reference = std::shared_ptr<Prepared>(KernelTable{}.prepare(kReferenceKernel, r));
               LocalType type = r.outputs[0];
               return prepared([&countdown, midway, reference, type](const Arguments& a) {
                 if (countdown-- != 0) return reference->launch(a);
                 if (midway) std::memset(a.outputs[0], 0x5A, static_cast<std::size_t>(type.bytes()));
                 throw std::runtime_error("the kernel failed");
               });
             }});
  return {{"cpu", std::move(table)}};
}

TEST(Failure, of_a_kernel_at_the_first_update_or_a_later_one_is_torn_and_names_what_was_begun) {
  for (const char* strategy : {"towers", "mirrored"})
    for (bool midway : {false, true}) {
      std::atomic<int> countdown = -1;
      KernelTables kernels = throwing(countdown, midway);
      Bench bench(training_graph(net("accuracy")), of(strategy, 2, 2), 2, 4, sim_cluster(2), kernels);
      int updates = 0;
      for (const UpdateBinding& u : bench.program.updates())
        updates += bench.program.plan().nodes[static_cast<std::size_t>(bench.program.bound().streams[static_cast<std::size_t>(u.stream)][static_cast<std::size_t>(u.index)].node)].op == "momentum";
      Runner runner(bench.program);
      for (int n = 0; n < updates; ++n) {
        bench.reset();
        countdown = n;
        Outcome o = runner.run(views(bench.feeds));
        ASSERT_TRUE(o.error);
        EXPECT_EQ(o.state, StateAfter::torn);
        EXPECT_GE(o.torn.size(), 2u) << "a weight and its slot, of which the kernel may have written some";
        bench.expect_true(o, std::string(strategy) + " launch " + std::to_string(n));
      }
      countdown = -1;
      bench.reset();
      bench.expect_right(runner.run(views(bench.feeds)), strategy);
    }
}

TEST(Failure, of_code_that_is_compiled_meanwhile_ends_the_preparing) {
  static thread_local int prepared_here = 0;
  std::atomic<int> finished = 0;
  std::atomic<int> countdown = -1;
  KernelTables kernels = throwing(countdown, false);
  Kernel momentum = kernels.at("cpu").all()[0];
  momentum.prepare = [prepare = momentum.prepare](const KernelRequest& r) { return ++prepared_here, prepare(r); };
  KernelTable table;
  table.add(momentum);
  table.finish = [&] { finished += std::exchange(prepared_here, 0) > 0 ? 1 : 0; };
  kernels["cpu"] = table;
  const Graph graph = training_graph(net("accuracy"));
  auto plan = std::make_shared<const PlacedGraph>(place(std::make_shared<const Graph>(graph), of("mirrored", 2, 2), sim_cluster(2), 4, {.fetches = fetches_of(graph), .kernels = chooser(kernels)}));
  {
    Program program(plan, kernels);
    Runner runner(program);
    EXPECT_EQ(finished, 2) << "each thread, once its kernels are prepared";
  }
  auto refused = [&](const char* where, const char* why) {
    Program program(plan, kernels);
    EXPECT_THAT([&] { Runner runner(program); }, testing::ThrowsMessage<DeviceError>(testing::AllOf(testing::HasSubstr(where), testing::HasSubstr(why))));
  };
  kernels["cpu"].finish = [] { throw DeviceError("it does not compile"); };
  refused("the kernels of sim:", ": it does not compile");
  momentum.prepare = [](const KernelRequest&) -> std::unique_ptr<Prepared> { throw DeviceError("there is no room"); };
  kernels["cpu"] = KernelTable();
  kernels["cpu"].add(momentum);
  refused("' on sim:", ": there is no room");
}

TEST(Failure, of_a_missing_or_wrong_feed_is_said_before_anything_runs) {
  Bench bench(training_graph(net("accuracy")), of("towers", 2, 2), 2, 4, sim_cluster(2));
  Runner runner(bench.program);
  Tensors feeds = bench.feeds;
  feeds.erase("label");
  EXPECT_THROW((void)runner.run(views(feeds)), UserError);
  feeds.emplace("label", HostTensor(f64, {3}));
  EXPECT_THROW((void)runner.run(views(feeds)), UserError);
  bench.reset();
  bench.expect_right(runner.run(views(bench.feeds)), "the step after");
}

// ---------------------------------------------------------------- donation

using Rule2 = std::function<std::pair<Value, Value>(Value, Value)>;

Graph crossed(const Rule2& rule) {
  Builder b("crossed");
  VariableOptions normal{.dtype = f64, .init = "normal", .init_value = 0.7, .trainable = false};
  Value a = b.variable("a", {3}, normal), c = b.variable("b", {3}, normal);
  auto [x, y] = rule(a, c);
  b.update(a, x);
  b.update(c, y);
  b.metric("sum", a + c);
  b.metric("new a", x);
  return run_passes(inference_passes(), std::move(b).build());
}

TEST(Donation, of_variables_that_read_each_other_gives_the_values_before_the_step) {
  const std::map<std::string, Rule2> rules = {
      {"exchanged", [](Value a, Value b) { return std::pair(b, a); }},
      {"product and sum", [](Value a, Value b) { return std::pair(a * b, a + b); }},
      {"sum and double", [](Value a, Value b) { return std::pair(a + b, a * 2.0); }},
      {"moved on", [](Value, Value b) { return std::pair(b, b * 2.0); }},
      {"kept", [](Value a, Value b) { return std::pair(a, b); }},
      {"both one", [](Value a, Value b) { Value s = a - b; return std::pair(s, s); }},
  };
  for (const auto& [name, rule] : rules)
    for (int n : {1, 2})
      for (const char* strategy : {"towers", "mirrored"})
        for (bool separate : {true, false}) {
          Bench bench(crossed(rule), of(strategy, 2, n), 2, 4, sim_cluster(n, separate));
          Runner runner(bench.program);
          std::string where = name + " by " + strategy + " on " + std::to_string(n);
          for (std::uint64_t seed = 0; seed < 10; ++seed) {
            bench.reset();
            Watcher watcher(bench.program.bound());
            bench.expect_right(runner.run_interleaved(views(bench.feeds), at_random(seed), &watcher), where);
            EXPECT_TRUE(watcher.found().empty()) << where << ": " << watcher.found()[0];
          }
          bench.reset();
          bench.expect_right(runner.run(views(bench.feeds)), where + " with threads");
        }
}

TEST(Donation, waits_for_a_reader_of_the_old_value_on_another_stream) {
  Builder b("late_reader");
  Value x = b.input("x", f64, {kBatch, 4}), w = b.variable("w", {4, 3}, {.dtype = f64, .init = "normal", .init_value = 0.7});
  Value loss = reduce_sum(square(matmul(x, w)));
  b.metric("late", matmul(x * (loss * 0.5), w));
  b.minimize(loss, Momentum{.learning_rate = 0.1});
  Bench bench(run_passes(training_passes(), std::move(b).build()), of("towers, variables on the last", 4, 2), 4, 7, sim_cluster(2, false));
  const PlacedGraph& plan = bench.program.plan();
  std::set<int> late, waited;  // streams that read the old value late, and that its writer waits for
  for (const auto& stream : bench.program.bound().streams)
    for (const Step& step : stream) {
      const PlanNode& n = plan.nodes[static_cast<std::size_t>(step.node)];
      if (n.scope == Scope::tower && n.epoch == 1) late.insert(step.stream);
      for (auto [u, variable] : n.donates)
        if (plan.value(variable).name == "w")
          for (const StepWait& wait : step.waits) waited.insert(wait.stream);
    }
  EXPECT_FALSE(late.empty());
  EXPECT_EQ(waited, late) << "the node that writes over w waits for the towers that read the old value after its gradient was ready";
  Runner runner(bench.program);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    bench.reset();
    Watcher watcher(bench.program.bound());
    bench.expect_right(runner.run_interleaved(views(bench.feeds), at_random(seed), &watcher), "late reader");
    EXPECT_TRUE(watcher.found().empty()) << watcher.found()[0];
  }
}

TEST(Failure, ends_every_one_of_four_threads_whichever_stage_throws) {
  auto graph = std::make_shared<const Graph>(training_graph(net("attention")));
  Cluster cluster = sim_cluster(4);
  cluster.cores = 4;
  auto plan = std::make_shared<const PlacedGraph>(place(graph, to_strategy(Layers{.devices = sims(4), .towers = 4, .order = PhaseOrder::gpipe, .threads = 1, .cut = LayerCut::variables}), cluster, 8));
  Program program(plan, reference_kernels());
  Runner runner(program);
  EXPECT_GT(program.threads().size(), 2u);
  Tensors feeds = feeds_for(*graph, 8);
  for (const auto& stream : program.bound().streams)
    for (const Step& failing : stream) {
      RunOptions options;
      options.delays = 7;
      options.before = [&](const Step& s) {
        if (s.stream == failing.stream && s.sequence == failing.sequence) throw Injected();
      };
      EXPECT_TRUE(runner.run(views(feeds), options).error);
    }
}

TEST(Event, stays_aborted_when_a_step_ends_after_the_abort) {
  Event event;
  event.abort();
  event.signal(3);
  EXPECT_FALSE(event.wait(5));
  event.reset();
  event.signal(3);
  EXPECT_TRUE(event.wait(3));
}

// ---------------------------------------------------------------- gate

/// A net whose gradient is NaN where a feed is, and closes its updates then.
Graph gated(bool by_optimizer) {
  Builder b("gated");
  Value x = b.input("x", f64, {kBatch, 4});
  Value w = b.variable("w", {4, 3}, {.dtype = f64, .init = "normal", .init_value = 0.7}), mean = b.variable("mean", {3}, {.dtype = f64, .trainable = false});
  Value h = matmul(x, w);
  Value loss = reduce_mean(square(h));
  b.update(mean, mean * 0.9 + reduce_mean(h, {.axes = {0}}) * 0.1);
  b.metric("loss", loss);
  if (!by_optimizer) b.gate(all_finite(loss));
  b.minimize(loss, Adam{.learning_rate = 0.1}, {.skip_nonfinite = by_optimizer});
  return run_passes(training_passes(), std::move(b).build());
}

TEST(Gate, that_is_closed_keeps_every_bit_of_state_and_the_step_counter) {
  for (bool by_optimizer : {false, true})
    for (const char* strategy : {"towers", "mirrored", "layers"})
      for (double poison : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        Bench bench(gated(by_optimizer), of(strategy, 2, 2), 2, 4, sim_cluster(2));
        Runner runner(bench.program);
        bench.reset();
        Tensors feeds = bench.feeds;
        feeds.at("x").data<double>()[5] = poison;
        for (int k = 0; k < 2; ++k) {
          Outcome o = runner.run(views(feeds));
          ASSERT_FALSE(o.error);
          EXPECT_FALSE(std::isfinite(o.fetched.at("loss").data<double>()[0]));
          for (const auto& [name, value] : bench.start) EXPECT_TRUE(bench.program.state(name) == value) << name << " moved through a closed gate by " << strategy;
        }
        // Open again: the step that follows is the first one.
        bench.expect_right(runner.run(views(bench.feeds)), strategy);
        EXPECT_EQ(bench.program.state("step").values<std::int64_t>()[0], 1);
      }
}

TEST(Gate, leaves_donation_in_place_where_the_selection_reads_the_old_value) {
  Bench bench(gated(true), of("towers", 2, 2), 2, 4, sim_cluster(2));
  const PlacedGraph& plan = bench.program.plan();
  int wheres = 0;
  for (const PlanNode& n : plan.nodes) {
    EXPECT_NE(n.op, kStore) << n.name << ": the old value is read by the selection alone";
    wheres += n.op == "where" && !n.donates.empty();
  }
  EXPECT_EQ(wheres, static_cast<int>(plan.updates.size()));
}

TEST(Gate, of_another_type_is_refused_with_a_way_out) {
  Builder b("wrong");
  Value x = b.input("x", f64, {kBatch});
  EXPECT_THROW(b.gate(x), UserError);
  Graph g = training_graph(net("accuracy"));
  try {
    gate_updates(g, g.losses.at(0));
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("all_finite"), std::string::npos) << e.what();
  }
}

TEST(Gate, several_must_all_be_open) {
  for (bool second : {false, true}) {
    Builder b("two_gates");
    Value a = b.variable("a", {}, {.dtype = f64, .init = "ones", .trainable = false}), one = constant(b.graph(), HostTensor::scalar(1.0));
    b.gate(equal(a, one));
    b.gate(equal(a, second ? one : constant(b.graph(), HostTensor::scalar(2.0))));
    b.update(a, a + one);
    Bench bench(run_passes(training_passes(), std::move(b).build()), of("towers", 1, 1), 1, 1, sim_cluster(1));
    Runner runner(bench.program);
    bench.reset();
    ASSERT_FALSE(runner.run({}).error);
    EXPECT_EQ(bench.program.state("a").values<double>()[0], second ? 2 : 1);
  }
}

}  // namespace
}  // namespace belfry::test
