#include <gtest/gtest.h>

#include <random>
#include <set>

#include <belfry/graph/structural.h>
#include <belfry/placer/expand.h>

#include "all_groups.h"
#include "interpreter.h"
#include "nets.h"

namespace belfry::test {
namespace {

std::vector<std::pair<int, std::int64_t>> cases() {
  std::vector<std::pair<int, std::int64_t>> out;
  for (int T : {1, 2, 3, 4, 6}) {
    std::set<std::int64_t> batches = {1, T, T + 1, 7, 12};
    if (T > 1) batches.insert(T - 1);
    for (std::int64_t b : batches) out.emplace_back(T, b);
  }
  return out;
}

std::vector<NodeId> random_order(const Graph& g, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<int> left(static_cast<std::size_t>(g.size()));
  std::vector<NodeId> ready, order;
  for (NodeId id = 0; id < g.size(); ++id) {
    std::set<NodeId> from;
    for (ValueId v : g.node(id).inputs)
      if (v.valid()) from.insert(v.node);
    left[static_cast<std::size_t>(id)] = static_cast<int>(from.size());
    if (from.empty()) ready.push_back(id);
  }
  while (!ready.empty()) {
    std::size_t at = rng() % ready.size();
    NodeId id = ready[at];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(at));
    order.push_back(id);
    for (NodeId r : g.readers(id))
      if (--left[static_cast<std::size_t>(r)] == 0) ready.push_back(r);
  }
  return order;
}

std::map<std::string, std::string> states_of(const TowerGraph& tg) {
  std::map<std::string, std::string> out;
  for (const PlanValue& v : tg.values) out[v.name] = to_string(v.state);
  return out;
}

class EveryNet : public testing::TestWithParam<std::string> {};

TEST_P(EveryNet, towers_equal_the_whole) {
  const Net& n = net(GetParam());
  auto graph = std::make_shared<const Graph>(training_graph(n));
  auto fetches = fetches_of(*graph);
  double worst = 0;
  for (auto [T, batch] : cases()) {
    auto feeds = feeds_for(*graph, batch), state = state_for(*graph);
    TowerGraph tg = expand(graph, {.towers = T, .batch = batch, .fetches = fetches});
    Result got = run_towers(tg, feeds, state);
    if (!n.per_tower || T == 1) {
      Result whole = run_whole(*graph, feeds, state, batch, fetches);
      worst = std::max({worst, difference(got.fetched, whole.fetched), difference(got.state, whole.state)});
    }
    for (int devices : {2, 3, 4}) {
      Result other = run_towers(tg, feeds, state, devices);
      EXPECT_TRUE(same_bits(other.state, got.state) && same_bits(other.fetched, got.fetched)) << "T " << T << " B " << batch << " devices " << devices;
    }
    for (std::uint64_t seed : {1, 2}) {
      TowerGraph other = expand(graph, {.towers = T, .batch = batch, .fetches = fetches, .visiting_order = random_order(*graph, seed)});
      EXPECT_EQ(states_of(other), states_of(tg));
      EXPECT_TRUE(same_bits(run_towers(other, feeds, state).state, got.state));
    }
  }
  EXPECT_LT(worst, 1e-9);
}

TEST_P(EveryNet, fetches_move_nothing) {
  auto graph = std::make_shared<const Graph>(training_graph(net(GetParam())));
  auto fetches = fetches_of(*graph);
  auto feeds = feeds_for(*graph, 7), state = state_for(*graph);
  Result all = run_towers(expand(graph, {.towers = 3, .batch = 7, .fetches = fetches}), feeds, state);
  EXPECT_TRUE(same_bits(run_towers(expand(graph, {.towers = 3, .batch = 7}), feeds, state).state, all.state));
  for (const auto& f : fetches) {
    Result one = run_towers(expand(graph, {.towers = 3, .batch = 7, .fetches = {f}}), feeds, state);
    EXPECT_TRUE(same_bits(one.state, all.state) && same_bits(one.fetched, all.fetched)) << f.first;
    Result without_updates = run_towers(expand(graph, {.towers = 3, .batch = 7, .updates = false, .fetches = {f}}), feeds, state);
    EXPECT_TRUE(same_bits(without_updates.fetched, all.fetched)) << f.first;
  }
}

TEST_P(EveryNet, any_value_can_be_fetched_and_moves_nothing_beside_fused_groups) {
  auto graph = std::make_shared<const Graph>(training_graph(net(GetParam()), f32));
  auto feeds = feeds_for(*graph, 7), state = state_for(*graph);
  auto with = [&](const ExpandOptions& options) { return run_towers(expand(graph, options), feeds, state); };
  ExpandOptions options{.towers = 3, .batch = 7, .groups = all_groups(*graph)};
  Result all = with(options);
  for (NodeId id = 0; id < graph->size(); ++id) {
    options.fetches = {{"it", {id, 0}}};
    Result one = with(options);
    EXPECT_TRUE(same_bits(one.state, all.state)) << graph->node(id).name;
    options.groups.clear();
    EXPECT_LT(difference(one.fetched, with(options).fetched), 1e-5) << graph->node(id).name;
    options.groups = all_groups(*graph);
  }
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list) out.push_back(n.name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, EveryNet, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

/// Nodes whose type has rows and that are nevertheless computed whole.
std::vector<std::string> computed_whole(const TowerGraph& tg) {
  std::vector<std::string> out;
  for (const PlanNode& n : tg.nodes)
    if (n.def && !n.def->source && n.op != kInput && n.scope == Scope::shared && !symbolic_axes(tg.value(n.outputs[0]).type.shape).empty()) out.push_back(n.op);
  return out;
}

TEST(Expand, only_the_late_flattening_and_what_works_along_the_rows_is_computed_whole) {
  for (const std::string& name : names()) {
    auto graph = std::make_shared<const Graph>(training_graph(net(name)));
    auto whole = computed_whole(expand(graph, {.towers = 3, .batch = 7, .fetches = fetches_of(*graph)}));
    if (name == "flattened_late") EXPECT_EQ(whole, (std::vector<std::string>{"reshape", "reshape"}));
    else if (name == "parts_of_rows") EXPECT_EQ(whole, (std::vector<std::string>{"slice", "cumsum", "concat", "slice", "slice", "cumsum"}));
    else EXPECT_TRUE(whole.empty()) << name << ": " << whole[0];
  }
}

}  // namespace
}  // namespace belfry::test
