#include <gtest/gtest.h>

#include <iostream>

#include <belfry/belfry.h>

#include "all_groups.h"
#include "plans.h"
#include "ran_as_planned.h"

namespace belfry::test {
namespace {

constexpr int kRuns = 3;

struct Wanted {
  Tensors start;
  std::vector<Result> steps;
};

Wanted wanted(const std::shared_ptr<const Graph>& graph, int T, std::int64_t batch) {
  Wanted out{state_for(*graph), {}};
  TowerGraph tg = expand(graph, {.towers = T, .batch = batch, .threads = 1, .fetches = fetches_of(*graph), .groups = all_groups(*graph)});
  Tensors state = out.start;
  for (int k = 0; k < kRuns; ++k) {
    out.steps.push_back(run_towers(tg, feeds_for(*graph, batch, static_cast<std::uint64_t>(k)), state));
    state = out.steps.back().state;
  }
  return out;
}

void expect_same(Program& program, const Graph& graph, const Wanted& want, const std::function<Outcome(const Feeds&)>& step, const std::string& where) {
  for (const auto& [name, value] : want.start) program.set_state(name, value);
  for (int k = 0; k < kRuns; ++k) {
    Tensors feeds = feeds_for(graph, program.plan().batch, static_cast<std::uint64_t>(k));
    Outcome got = step(views(feeds));
    if (got.error) {
      try {
        std::rethrow_exception(got.error);
      } catch (const std::exception& e) {
        FAIL() << where << ": " << e.what();
      }
    }
    const Result& expected = want.steps[static_cast<std::size_t>(k)];
    for (const auto& [name, value] : expected.fetched) ASSERT_TRUE(got.fetched.at(name) == value) << where << " step " << k << " fetch " << name;
    for (const auto& [name, value] : expected.state) {
      ASSERT_TRUE(program.state(name) == value) << where << " step " << k << " variable " << name;
      ASSERT_TRUE(program.holders_agree(name)) << where << " variable " << name;
    }
  }
}

class PlanOf : public testing::TestWithParam<std::string> {};

TEST_P(PlanOf, gives_the_interpreters_bits_under_any_interleaving) {
  auto graph = std::make_shared<const Graph>(training_graph(net(GetParam())));
  for (auto [T, batch] : {std::pair{4, std::int64_t{7}}, {4, 2}, {6, 7}}) {
    Wanted want = wanted(graph, T, batch);
    for (int n : {1, 2, 3, 4})
      for (bool separate : {true, false}) {
        // Of memory and streams each pair with two of the four numbers of devices.
        const int streams = (n + separate) % 2 + 1;
        if (T == 6 && n == 1) continue;
        Cluster cluster = sim_cluster(n, separate, streams);
        for (const NamedStrategy& s : strategies(T, n)) {
          std::string where = GetParam() + " T" + std::to_string(T) + " B" + std::to_string(batch) + " n" + std::to_string(n) + (separate ? " separate " : " one space ") + std::to_string(streams) + " streams, " + s.name;
          auto plan = std::make_shared<const PlacedGraph>(place(graph, s.strategy, cluster, batch, {.fetches = fetches_of(*graph), .groups = all_groups}));
          auto objections = verify(*plan);
          ASSERT_TRUE(objections.empty()) << where << ": " << objections[0];
          Program program(plan, reference_kernels());
          for (int t = 0; t < static_cast<int>(program.threads().size()); ++t) program.prepare_thread(t);
          Runner runner(program);
          std::vector<Chooser> choosers = {in_turn(), at_random(1), at_random(2), starving(0), starving(static_cast<int>(plan->streams.size()) - 1)};
          for (Chooser& choose : choosers)
            expect_same(program, *graph, want, [&](const Feeds& feeds) {
              Watcher watcher(program.bound());
              Outcome o = runner.run_interleaved(feeds, choose, &watcher);
              EXPECT_TRUE(watcher.found().empty()) << where << ": " << (watcher.found().empty() ? "" : watcher.found()[0]);
              return o;
            }, where);
          expect_same(program, *graph, want, [&](const Feeds& feeds) { return runner.run(feeds, {.trace = true}); }, where + " (threads)");
          ASSERT_TRUE(ran_as_planned(*plan, program, runner.trace())) << where;
          if (HasFatalFailure()) return;
        }
      }
  }
}

/// Every node, and some of single towers, anywhere on three sim devices and two that share the host's memory.
Placement random_placement(const Graph& graph, std::mt19937_64& rng) {
  auto pick = [&](std::uint64_t n) { return static_cast<int>(rng() % n); };
  const std::vector<DeviceId> all = parse_devices("sim:0-2,cpu:0-1");
  auto devices = [&](int most) {
    std::vector<DeviceId> out = all;
    std::shuffle(out.begin(), out.end(), rng);
    out.resize(1 + static_cast<std::size_t>(pick(static_cast<std::uint64_t>(most))));
    return out;
  };
  Placement p;
  p.towers = 1 + pick(5);
  p.batch = 1 + pick(7);
  p.order = static_cast<PhaseOrder>(pick(3));
  for (const Node& n : graph.nodes()) {
    if (pick(3)) continue;
    std::string match = pick(4) ? n.name : "tower_" + std::to_string(pick(static_cast<std::uint64_t>(p.towers))) + "/" + n.name;
    p.rules.push_back({match, devices(match == n.name ? 2 : 1), "by chance"});
  }
  p.rules.push_back({"tower_*/**", devices(3), "by chance"});
  p.rules.push_back({"**", devices(2), "by chance"});
  return p;
}

TEST(AnyPlacement, gives_the_interpreters_bits) {
  int ran = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    std::mt19937_64 rng(seed);
    std::vector<std::string> all = {"batch_norm", "batch_norm_sync", "dropout", "embedding", "contrastive", "decay", "tied", "mean_of_means", "adam"};
    std::string name = all[rng() % all.size()];
    auto graph = std::make_shared<const Graph>(training_graph(net(name)));
    Placement placement = random_placement(*graph, rng);
    Cluster cluster = local_cluster(parse_devices("sim:0-2,cpu:0-1"), 2);
    for (ClusterDevice& d : cluster.devices) d.streams = 1 + static_cast<int>(rng() % 3);
    std::string where = name + ", seed " + std::to_string(seed);
    std::shared_ptr<const PlacedGraph> plan;
    try {
      plan = std::make_shared<const PlacedGraph>(place(graph, placement, cluster, {.fetches = fetches_of(*graph), .groups = all_groups}));
    } catch (const UserError&) {
      ++refused;
      continue;
    }
    auto objections = verify(*plan);
    ASSERT_TRUE(objections.empty()) << where << ": " << objections[0];
    Program program(plan, reference_kernels());
    for (int t = 0; t < static_cast<int>(program.threads().size()); ++t) program.prepare_thread(t);
    Runner runner(program);
    Wanted want = wanted(graph, placement.towers, placement.batch);
    expect_same(program, *graph, want, [&](const Feeds& feeds) {
      Watcher watcher(program.bound());
      Outcome o = runner.run_interleaved(feeds, at_random(seed), &watcher, {.trace = true});
      EXPECT_TRUE(watcher.found().empty()) << where << ": " << (watcher.found().empty() ? "" : watcher.found()[0]);
      return o;
    }, where);
    ASSERT_TRUE(ran_as_planned(*plan, program, runner.trace())) << where;
    if (HasFailure()) return;
    ++ran;
  }
  std::cout << ran << " placements ran, " << refused << " were refused\n";
  EXPECT_GT(ran, 100);
}

/// Both of no bytes at one place: that is not over its input.
TEST(AnyPlacement, gives_a_kernel_that_writes_over_no_input_a_place_for_nothing) {
  Builder b("empty");
  Value x = b.input("x", f32, {kBatch, 2, 0, 4}) * 2.0;
  b.output(scaled_dot_product_attention(x, x, x));
  Session session(std::move(b).build(), Single{.device = cpu(0), .threads = 1});
  EXPECT_EQ(session.run({{"x", HostTensor(f32, {3, 2, 0, 4})}}).all().begin()->second.shape(), (Extents{3, 2, 0, 4}));
}

TEST(AnyPlacement, waits_for_the_copy_of_each_output_of_one_node) {
  auto graph = std::make_shared<const Graph>(training_graph(net("adam")));
  Placement p;
  p.towers = 2;
  p.batch = 4;
  p.rules = {{"adam/in/w", parse_devices("sim:0"), "apart"}, {"tower_*/**", parse_devices("cpu:0-1"), "towers"}, {"**", parse_devices("cpu:0-1"), "both"}};
  auto objections = verify(place(graph, p, local_cluster(parse_devices("cpu:0-1,sim:0"), 2)));
  EXPECT_TRUE(objections.empty()) << objections[0];
}

INSTANTIATE_TEST_SUITE_P(EveryNet, PlanOf, testing::ValuesIn(names_of_nets()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace belfry::test
