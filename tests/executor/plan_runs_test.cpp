#include <gtest/gtest.h>

#include <belfry/ops/fusions.h>

#include "plans.h"
#include "ran_as_planned.h"

namespace belfry::test {
namespace {

constexpr int kSteps = 3;

struct Wanted {
  Tensors start;
  std::vector<Result> steps;
};

Wanted wanted(const std::shared_ptr<const Graph>& graph, int T, std::int64_t batch) {
  Wanted out{state_for(*graph), {}};
  TowerGraph tg = expand(graph, {.towers = T, .batch = batch, .threads = 1, .fetches = fetches_of(*graph), .groups = find_groups(*graph)});
  Tensors state = out.start;
  for (int k = 0; k < kSteps; ++k) {
    out.steps.push_back(run_towers(tg, feeds_for(*graph, batch, static_cast<std::uint64_t>(k)), state));
    state = out.steps.back().state;
  }
  return out;
}

void expect_same(Program& program, const Graph& graph, const Wanted& want, const std::function<Outcome(const Feeds&)>& step, const std::string& where) {
  for (const auto& [name, value] : want.start) program.set_state(name, value);
  for (int k = 0; k < kSteps; ++k) {
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
  for (auto [T, batch] : {std::pair{4, std::int64_t{7}}, {4, 2}, {3, 3}, {6, 7}}) {
    Wanted want = wanted(graph, T, batch);
    for (int n : {1, 2, 3, 4})
      for (bool separate : {true, false})
        for (int streams : {1, 2}) {
          if (T == 6 && n == 1) continue;
          Cluster cluster = sim_cluster(n, separate, streams);
          for (const NamedStrategy& s : strategies(T, n)) {
            std::string where = GetParam() + " T" + std::to_string(T) + " B" + std::to_string(batch) + " n" + std::to_string(n) + (separate ? " separate " : " one space ") + std::to_string(streams) + " streams, " + s.name;
            auto plan = std::make_shared<const PlacedGraph>(place(graph, s.strategy, cluster, batch, {.fetches = fetches_of(*graph), .groups = find_groups}));
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

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list)
      if (n.name != "two_heads") out.push_back(n.name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(EveryNet, PlanOf, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace belfry::test
