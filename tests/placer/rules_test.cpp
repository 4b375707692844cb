#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

std::shared_ptr<const Graph> small() {
  Builder b("small");
  Value x = b.input("x", f32, {kBatch, 3}), w = b.variable("w", {3, 2}, {.init = "normal", .init_value = 0.3});
  Value y = relu(matmul(x, w) * 3.0);
  b.metric("y", y);
  b.metric("sum", reduce_sum(y));
  return std::make_shared<const Graph>(std::move(b).build());
}

/// Two towers on two sim devices; the rules given go first, and each must decide something.
PlacedGraph ruled(const std::vector<PlacementRule>& rules, std::int64_t batch = 4, const std::function<std::vector<FusionGroup>(const Graph&)>& groups = {}) {
  auto graph = small();
  PlaceOptions options{.fetches = {{"y", graph->metrics.at("y")}, {"sum", graph->metrics.at("sum")}}, .rules = rules, .groups = groups};
  options.must_decide = rules.size();
  return place(graph, to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .towers = 2, .threads = 1}), sim_cluster(2), batch, options);
}

void refused(const std::string& match, const std::vector<std::string>& words, const std::vector<PlacementRule>& before = {}) {
  std::vector<PlacementRule> rules = before;
  rules.push_back({match, {cpu(0)}, "by hand"});
  EXPECT_TRUE(says([&] { ruled(rules); }, words));
}

TEST(Rules, that_decide_nothing_are_refused_and_say_why) {
  refused("nonsense", {"the rule \"nonsense\" matches no node", "name one of 'small', or take the rule out: it may be of another graph"});
  refused("matmull", {"matches no node; did you mean matmul"});
  refused("tower_1/matmull", {"matches no node; did you mean tower_1/matmul?"});
  refused("tower_*/matmull", {"matches no node; did you mean tower_*/matmul?"});
  refused("fetch/sun", {"matches no node; 'fetch/sum' is a result: results live on the host; name one of 'small'"});
  refused("x", {"the rule \"x\" decides nothing: 'x' is an input: feeds live on the host"});
  refused("fetch/sum", {"'fetch/sum' is a result: results live on the host"});
  refused("tower_0/w", {"'w' runs outside them: write \"w\""});
  refused("tower_2/**", {"speaks of tower 2, but there are 2", "from 0 to 1", "--towers 3"});
  refused("matmul", {"'matmul' is decided by a rule before it (the rest); take one of the two out"}, {{"**", {cpu(0)}, "the rest"}});
  auto graph = small();
  for (const Node& n : graph->nodes())
    if (n.op->source && n.op->name != kInput && n.op->name != kVariable) refused(n.name, {"is a source, which is computed where it is read"});
}

TEST(Rules, without_a_reason_are_their_own) {
  const PlacedGraph plan = ruled({{"matmul", {cpu(0)}}, {"tower_1/mul", {cpu(0)}}});
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  for (const PlanNode& n : plan.nodes)
    if (n.name == "matmul") { EXPECT_EQ(n.reason, "by the rule \"matmul\""); }
  EXPECT_EQ(plan.placement.rules.at(0).reason, "by the rule \"matmul\"");
}

TEST(Rules, of_a_member_name_the_fused_node) {
  auto graph = small();
  NodeId last = graph->metrics.at("y").node, before = graph->node(last).inputs[0].node;
  auto groups = [&](const Graph&) { return std::vector<FusionGroup>{{"mul_relu", {before, last}}}; };
  EXPECT_TRUE(says([&] { ruled({{graph->node(before).name, {cpu(0)}, "by hand"}}, 4, groups); }, {"is computed inside the fused node '" + graph->node(last).name + "'"}));
}

TEST(Rules, of_towers_without_rows_and_for_the_rest_may_decide_nothing) {
  EXPECT_NO_THROW(ruled({{"tower_1/matmul", {cpu(0)}, "by hand"}, {"tower_*/**", {cpu(0)}, "towers"}, {"**", {cpu(0)}, "rest"}, {"tower_0/**", {cpu(0)}, "first"}}, 1));
}

TEST(Rules, for_all_leave_rows_of_feeds_and_sources_in_towers_to_their_readers) {
  Builder b("rows");
  b.minimize(mean(square(matmul(b.input("x", f32, {kBatch, 3}), b.variable("w", {3, 2}, {.init = "normal", .init_value = 0.3})))), Momentum{.learning_rate = 0.1});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  Placement p;
  p.towers = 2, p.batch = 4;
  for (const PlanNode& n : expand(graph, {.towers = 2, .batch = 4}).nodes)
    if (n.scope == Scope::tower && n.def && !n.def->source) p.rules.push_back({n.name, {sims(2)[1]}, "by hand"});
  p.rules.push_back({"**", {sims(2)[0]}, "rest"});
  const PlacedGraph plan = place(graph, p, sim_cluster(2));
  int loose = 0;
  for (const PlanNode& n : plan.nodes) {
    if (n.scope != Scope::tower || is_op(n, kCopy)) continue;
    loose += n.op == kSplit || n.def->source;
    EXPECT_EQ(to_string(plan.cluster.devices[static_cast<std::size_t>(plan.device_of(n, 0))].id), "sim:1") << n.name;
  }
  EXPECT_EQ(loose, 2) << "the split of x, and the weights of rows in the mean";
}

TEST(Rules, name_no_device_twice) {
  EXPECT_TRUE(says([&] { ruled({{"w", {cpu(0), cpu(0)}, "by hand"}}); }, {"the rule \"w\" puts 'w' on one device twice; name each once"}));
}

TEST(Rules, of_one_tower_keep_their_reason) {
  PlacedGraph plan = ruled({{"tower_1/matmul", {cpu(0)}, "moved by hand"}});
  for (const PlanNode& n : plan.nodes)
    if (n.name == "matmul") {
      EXPECT_THAT(n.reason, testing::HasSubstr("tower 0: "));
      EXPECT_THAT(n.reason, testing::EndsWith("; tower 1: moved by hand"));
    }
  PlacedGraph both = ruled({{"tower_0/matmul", {cpu(0)}, "by hand"}, {"tower_1/matmul", {cpu(0)}, "by hand"}});
  for (const PlanNode& n : both.nodes) EXPECT_TRUE(n.name != "matmul" || n.reason == "by hand") << n.reason;
}

}  // namespace
}  // namespace belfry::test
