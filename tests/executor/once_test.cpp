// What is made once, run: the bits of making it in each step, anew where variables were set, and again where it failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cctype>
#include <mutex>

#include <belfry/belfry.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/structural.h>

#include "plans.h"

namespace belfry::test {
namespace {

/// Values of variables and constants alone beside what feeds scale, in two layers.
Graph weighed_values() {
  Builder b("weighed");
  Value x = b.input("x", f64, {kBatch, 8}), scale = b.input("scale", f64, {3}), small = b.variable("small", {8, 3}, {.dtype = f64}), flat = b.variable("flat", {24}, {.dtype = f64});
  Value turned = reshape(square(flat), {8, 3}), sum = small + turned;
  Value h = relu(matmul(x, sum));
  b.metric("h", h);
  b.metric("scaled", matmul(x, sum * scale));
  b.metric("out", matmul(h, reshape(square(b.variable("last", {12}, {.dtype = f64})), {3, 4}) + 1));
  b.metric("itself", sum);
  return run_passes(inference_passes(), std::move(b).build());
}

/// Counts what is made once, and what in each step.
struct CountedOnce {
  int once = 0, each = 0;
  std::mutex mutex;
  std::function<void(const Step&)> before(const PlacedGraph& plan) {
    return [this, &plan](const Step& s) {
      std::lock_guard lock(mutex);
      ++(plan.nodes[static_cast<std::size_t>(s.node)].once ? once : each);
    };
  }
};

struct MadeOnce : testing::TestWithParam<std::string> {
  std::shared_ptr<const Graph> graph = std::make_shared<const Graph>(weighed_values());
  std::shared_ptr<const PlacedGraph> plan = placed();

  std::shared_ptr<const PlacedGraph> placed(std::int64_t batch = 7) const {
    for (int devices : {1, 3})
      for (NamedStrategy& s : strategies(4, devices))
        if (s.name == GetParam()) return std::make_shared<const PlacedGraph>(place(graph, s.strategy, sim_cluster(devices, true, 2), batch, {.fetches = fetches_of(*graph)}));
    throw InternalError("no strategy " + GetParam());
  }
  Tensors wanted(const Tensors& feeds, const Tensors& state, std::int64_t batch = 7) const {
    return run_towers(expand(graph, {.towers = 4, .batch = batch, .threads = 1, .fetches = fetches_of(*graph)}), feeds, state).fetched;
  }
  static void set(Program& program, const Tensors& state) {
    for (const auto& [name, value] : state) program.set_state(name, value);
  }
};

TEST_P(MadeOnce, has_the_bits_of_each_step_and_runs_when_variables_were_set) {
  ASSERT_THAT(verify(*plan), testing::IsEmpty());
  Program program(plan, reference_kernels());
  Runner runner(program);
  const auto once = static_cast<int>(program.bound().once.size());
  EXPECT_GT(once, 0);
  int each = 0;
  for (const auto& s : program.bound().streams) each += static_cast<int>(s.size());
  auto step = [&](std::uint64_t data, std::uint64_t state, int made, bool interleaved) {
    const Tensors feeds = feeds_for(*graph, 7, data);
    CountedOnce counted;
    const RunOptions options{.before = counted.before(*plan)};
    Watcher watcher(program.bound());
    Outcome o = interleaved ? runner.run_interleaved(views(feeds), at_random(data), &watcher, options) : runner.run(views(feeds), options);
    ASSERT_FALSE(o.error);
    EXPECT_EQ(o.fetched, wanted(feeds, state_for(*graph, state))) << data;
    EXPECT_EQ(counted.once, made) << data;
    EXPECT_EQ(counted.each, each) << data;
    EXPECT_THAT(watcher.found(), testing::IsEmpty());
  };
  std::uint64_t data = 0;
  for (bool interleaved : {false, true})
    for (std::uint64_t state : {1, 2}) {
      set(program, state_for(*graph, state));
      step(++data, state, once, interleaved);
      step(++data, state, 0, interleaved);
      step(++data, state, 0, !interleaved);
    }
  // One variable alone.
  Tensors mixed = state_for(*graph, 2);
  mixed.at("flat") = state_for(*graph, 5).at("flat");
  program.set_state("flat", mixed.at("flat"));
  const Tensors feeds = feeds_for(*graph, 7);
  EXPECT_EQ(runner.run(views(feeds)).fetched, wanted(feeds, mixed));
}

TEST_P(MadeOnce, of_traces_is_none) {
  Program program(plan, reference_kernels());
  Runner runner(program);
  set(program, state_for(*graph));
  const Tensors feeds = feeds_for(*graph, 7);
  for (int k = 0; k < 2; ++k) {
    ASSERT_FALSE(runner.run(views(feeds), {.trace = true}).error);
    std::size_t each = 0;
    for (const auto& s : program.bound().streams) each += s.size();
    EXPECT_EQ(runner.trace().size(), each);
  }
}

/// Whatever fails first is told, nothing else has run, and the next run makes all of it.
TEST_P(MadeOnce, is_made_again_behind_a_failure) {
  Program program(plan, reference_kernels());
  Runner runner(program);
  set(program, state_for(*graph));
  const Tensors feeds = feeds_for(*graph, 7), want = wanted(feeds, state_for(*graph));
  for (std::size_t victim = 0; victim < program.bound().once.size(); ++victim)
    for (bool interleaved : {false, true}) {
      program.set_state("flat", state_for(*graph).at("flat"));
      std::atomic<int> each = 0;
      RunOptions options;
      options.before = [&](const Step& s) {
        if (&s == &program.bound().once[victim]) throw std::runtime_error("injected");
        each += !plan->nodes[static_cast<std::size_t>(s.node)].once;
      };
      Outcome o = interleaved ? runner.run_interleaved(views(feeds), in_turn(), nullptr, options) : runner.run(views(feeds), options);
      ASSERT_TRUE(o.error);
      EXPECT_EQ(o.failed_node, plan->nodes[static_cast<std::size_t>(program.bound().once[victim].node)].name);
      EXPECT_EQ(each, 0);
      for (int k = 0; k < 2; ++k) {
        o = runner.run(views(feeds));
        ASSERT_FALSE(o.error);
        EXPECT_EQ(o.fetched, want);
      }
    }
}

/// A step that fails for another reason leaves what was made as it is.
TEST_P(MadeOnce, stays_behind_a_step_that_failed) {
  Program program(plan, reference_kernels());
  Runner runner(program);
  set(program, state_for(*graph));
  const Tensors feeds = feeds_for(*graph, 7);
  RunOptions options;
  options.before = [&](const Step& s) {
    if (plan->nodes[static_cast<std::size_t>(s.node)].op == kFetch) throw std::runtime_error("injected");
  };
  EXPECT_TRUE(runner.run(views(feeds), options).error);
  CountedOnce counted;
  EXPECT_EQ(runner.run(views(feeds), {.before = counted.before(*plan)}).fetched, wanted(feeds, state_for(*graph)));
  EXPECT_EQ(counted.once, 0);
}

/// Programs of other batches share the variables, and each makes its own.
TEST_P(MadeOnce, is_made_by_each_program_of_a_state) {
  auto store = std::make_shared<StateStore>();
  Program a(plan, reference_kernels(), store), b(placed(5), reference_kernels(), store);
  Runner run_a(a), run_b(b);
  for (std::uint64_t state : {3, 4}) {
    set(state == 3 ? a : b, state_for(*graph, state));
    for (int k = 0; k < 2; ++k) {
      const Tensors of_a = feeds_for(*graph, 7, state), of_b = feeds_for(*graph, 5, state);
      EXPECT_EQ(run_a.run(views(of_a)).fetched, wanted(of_a, state_for(*graph, state)));
      EXPECT_EQ(run_b.run(views(of_b)).fetched, wanted(of_b, state_for(*graph, state), 5));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, MadeOnce, testing::Values("single", "towers", "towers, variables on the last", "mirrored", "sharded", "layers", "gpipe", "1f1b"),
                         [](const auto& info) {
                           std::string out;
                           for (char c : info.param) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return out;
                         });

/// Whatever writes variables: a load of all or some, a step, a reset; programs of all modes share them.
TEST(MadeOnceInSessions, follows_the_variables_however_they_are_set) {
  auto net = [] {
    Builder b("followed");
    Value x = b.input("x", f32, {kBatch, 6});
    Value w = b.variable("w", {12, 3}, {.init = "normal", .init_value = 0.7}), shift = b.variable("shift", {3}, {.init = "ones"});
    Value y = matmul(x, reshape(square(w), {6, 6}));
    y = y * reshape(b.variable("scale", {6, 1}, {.init = "ones"}), {6});
    b.output(identity(y, "y"));
    b.minimize(mean(square(y)) + reduce_sum(square(shift)), Sgd{.learning_rate = 0.05});
    return std::move(b).build();
  };
  for (const char* devices : {"cpu:0", "sim:0,sim:1"}) {
    const std::vector<DeviceId> on = parse_devices(devices);
    auto session = [&] { return Session(net(), Mirrored{.devices = on, .towers = 2}); };
    Session s = session();
    const Tensors feeds = feeds_for(s.graph(), 4);
    auto expect_fresh = [&](const std::string& when) {
      for (int k = 0; k < 2; ++k)
        for (const std::int64_t batch : {4, 6}) {
          const Tensors rows = feeds_for(s.graph(), batch, static_cast<std::uint64_t>(k));
          Session other = session();  // whose first step it is
          other.load_state(s.state());
          EXPECT_EQ(s.predict(rows, {"y"})["y"], other.predict(rows, {"y"})["y"]) << when;
          EXPECT_EQ(s.run(rows, {"y"})["y"], other.run(rows, {"y"})["y"]) << when;
        }
    };
    expect_fresh("at first");
    const HostTensor before = s.predict(feeds, {"y"})["y"];
    for (HostTensor last = before; const char* when : {"behind a step", "behind another"}) {
      s.step(feeds);
      EXPECT_NE(s.predict(feeds, {"y"})["y"], last) << when;
      expect_fresh(when);
      last = s.predict(feeds, {"y"})["y"];
    }
    State some = {{"w", s.variable("w")}};
    for (float& v : some.at("w").data<float>()) v = -3 * v + 1;
    s.load_state(some);
    expect_fresh("behind a load of one");
    s.load_weights(session().weights());
    expect_fresh("behind a load of weights");
    s.step(feeds);
    s.reset();
    expect_fresh("behind a reset");
    EXPECT_EQ(s.predict(feeds, {"y"})["y"], before);
  }
}

}  // namespace
}  // namespace belfry::test
