#include <gtest/gtest.h>

#include <belfry/frontends/json/plan_file.h>

#include "plans.h"

namespace belfry::test {
namespace {

PlaceOptions options_of(const PlacedGraph& plan) {
  PlanRequest r = request_of(plan);
  PlaceOptions out{.fetches = r.fetches, .updates = r.updates};
  out.groups = [groups = r.groups](const Graph&) { return groups; };
  return out;
}

PlacedGraph read_back(const std::string& text, const PlacedGraph& plan) { return read_plan(text, "plan.json", plan.graph->shared_ops()); }

void expect_same_text(const std::string& a, const std::string& b, const std::string& where) {
  if (a == b) return;
  std::size_t at = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  std::size_t from = at < 200 ? 0 : at - 200;
  FAIL() << where << " at byte " << at << ":\n" << a.substr(from, 500) << "\n---\n" << b.substr(from, 500);
}

void expect_whole(const PlacedGraph& plan, const std::string& where) {
  std::string text = write_plan(plan);
  PlacedGraph again = read_back(text, plan);
  expect_same_text(text, write_plan(again), where);
  ASSERT_EQ(arithmetic_hash(again), plan.arithmetic_hash) << where;
  auto objections = verify(again);
  ASSERT_TRUE(objections.empty()) << where << ": " << objections[0];
  expect_same_text(write_graph(*plan.graph), write_graph(*graph_of_plan(plan)), where);
  expect_same_text(text, write_plan(place(again.graph, placement_of(again), again.cluster, options_of(again))), where + " (placed anew)");
}

class PlanFileOf : public testing::TestWithParam<std::string> {};

TEST_P(PlanFileOf, reads_back_verifies_and_is_derived_anew_to_the_same_bytes) {
  auto graph = std::make_shared<const Graph>(training_graph(net(GetParam())));
  struct Case {
    int towers;
    std::int64_t batch;
    std::vector<int> devices;
  };
  for (const Case& c : {Case{4, 7, {1, 2, 3}}, {4, 2, {4}}, {3, 3, {3}}, {6, 7, {4}}})
    for (int n : c.devices)
      for (bool separate : {true, false}) {
        auto [T, batch] = std::pair(c.towers, c.batch);
        Cluster cluster = sim_cluster(n, separate, n == 2 ? 2 : 1);
        for (const NamedStrategy& s : strategies(T, n)) {
          std::string where = GetParam() + " T" + std::to_string(T) + " B" + std::to_string(batch) + " n" + std::to_string(n) + (separate ? " separate, " : " one space, ") + s.name;
          expect_whole(place(graph, s.strategy, cluster, batch, {.fetches = fetches_of(*graph)}), where);
          if (HasFatalFailure()) return;
        }
      }
}

TEST_P(PlanFileOf, keeps_what_the_plan_does_not_run) {
  auto graph = std::make_shared<const Graph>(training_graph(net(GetParam())));
  auto fetches = fetches_of(*graph);
  Strategy strategy = to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .towers = 2, .threads = 1});
  expect_whole(place(graph, strategy, sim_cluster(2), 5), GetParam() + " without fetches");
  expect_whole(place(graph, strategy, sim_cluster(2), 5, {.fetches = {fetches[0]}, .updates = false}), GetParam() + " without updates");
}

TEST(PlanFile, keeps_a_fetch_of_what_each_tower_has_of_a_sum) {
  auto graph = std::make_shared<const Graph>(training_graph(net("accuracy")));
  ValueId loss = graph->metrics.at("loss");
  Strategy strategy = to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .towers = 2, .threads = 1});
  PlacedGraph plan = place(graph, strategy, sim_cluster(2), 5, {.fetches = {{"loss", loss}, {"loss@towers", loss}}});
  expect_whole(plan, "loss@towers");
}

TEST(PlanFile, keeps_the_records_of_the_machine_that_it_was_made_for) {
  auto graph = std::make_shared<const Graph>(training_graph(nets()[0]));
  PlacedGraph plan = place(graph, strategies(2, 2)[0].strategy, sim_cluster(2), 4, {.fetches = fetches_of(*graph), .isa = "avx2, avx2", .libraries = "oneDNN 3.1.0"});
  PlacedGraph again = read_back(write_plan(plan), plan);
  EXPECT_EQ(again.isa, "avx2, avx2");
  EXPECT_EQ(again.libraries, "oneDNN 3.1.0");
  EXPECT_EQ(write_plan(again), write_plan(plan));
  plan.isa = plan.libraries = "";
  again = read_back(write_plan(plan), plan);
  EXPECT_EQ(again.isa + again.libraries, "");
}

INSTANTIATE_TEST_SUITE_P(EveryNet, PlanFileOf, testing::ValuesIn(names_of_nets()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace belfry::test
