#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/placer/diff.h>

#include "plans.h"
#include "says.h"
#include "swapped.h"

namespace belfry::test {
namespace {

std::shared_ptr<const Graph> graph_of(const std::string& name) { return std::make_shared<const Graph>(training_graph(net(name))); }

PlacedGraph placed_over(const std::shared_ptr<const Graph>& graph, int devices, std::int64_t rows_each = 3) {
  return place(graph, to_strategy(Towers{.devices = sims(devices), .variables = cpu(0), .towers = devices, .threads = 1}), sim_cluster(devices), devices * rows_each, {.fetches = fetches_of(*graph)});
}

PlacedGraph read_back(const std::string& text, const PlacedGraph& plan) { return read_plan(text, "plan.json", plan.graph->shared_ops()); }

PlacedGraph derived_anew(const PlacedGraph& plan, std::int64_t batch) {
  Placement decisions = placement_of(plan);
  decisions.batch = batch;
  return place(plan.graph, decisions, plan.cluster, {.fetches = request_of(plan).fetches, .updates = request_of(plan).updates});
}
PlacedGraph derived_anew(const PlacedGraph& plan) { return derived_anew(plan, plan.batch); }

std::string line_of(const std::string& text, const std::string& name) {
  auto at = text.find("{\"name\": \"" + name + "\"");
  return at == text.npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(PlanText, of_another_format_is_refused_with_the_way_out) {
  auto graph = std::make_shared<const Graph>(training_graph(nets()[0]));
  const PlacedGraph plan = place(graph, to_strategy(Single{.threads = 1}), sim_cluster(1), 2);
  for (auto [format, words] : {std::pair("1", "plan.json:2: /belfry: a plan of format 1, whose byte offsets mean something else; its decisions hold: write 2 here, and  belfry place plan.json -o plan.json"),
                               {"3", "the file is of format 3; this program reads format 2"}}) {
    std::string text = write_plan(plan);
    const std::string head = R"("belfry": 2)";
    ASSERT_NE(text.find(head), text.npos);
    text.replace(text.find(head), head.size(), std::string(R"("belfry": )") + format);
    EXPECT_NE(message_of([&] { read_back(text, plan); }).find(words), std::string::npos) << text.substr(0, 200);
  }
}

TEST(PlanText, has_one_arithmetic_hash_in_whatever_order_its_nodes_are) {
  auto graph = graph_of("decay");
  const PlacedGraph plan = placed_over(graph, 2);
  std::vector<std::size_t> variables;  // which may stand in any order
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (plan.nodes[i].scope == Scope::state) variables.push_back(i);
  ASSERT_GE(variables.size(), 2u);
  const std::string one = fmt::format("\"position\": {},", variables[0]), other = fmt::format("\"position\": {},", variables[1]);
  const PlacedGraph turned = read_back(swapped(swapped(swapped(write_plan(plan), one, "*"), other, one), "*", other), plan);
  ASSERT_EQ(turned.nodes[variables[0]].name, plan.nodes[variables[1]].name);
  EXPECT_EQ(arithmetic_hash(turned), plan.arithmetic_hash);
}

TEST(PlanEdit, after_a_hand_edit_the_verifier_objects_and_placing_anew_verifies) {
  auto graph = graph_of("decay");
  PlacedGraph plan = placed_over(graph, 2);
  std::string text = write_plan(plan), line;
  for (const PlanNode& n : plan.nodes)
    if (n.scope == Scope::tower && !n.inserted && n.role == Role::forward && n.op == "matmul") line = line_of(text, n.name);
  ASSERT_NE(line.find("\"assigned\": {\"0-1\": \"sim:0-1\"}"), line.npos) << line;
  PlacedGraph edited = read_back(swapped(text, line, swapped(line, "\"assigned\": {\"0-1\": \"sim:0-1\"}", "\"assigned\": {\"0-1\": \"sim:0\"}")), plan);
  EXPECT_FALSE(verify(edited).empty());
  PlacedGraph anew = derived_anew(edited);
  auto objections = verify(anew);
  EXPECT_TRUE(objections.empty()) << objections[0];
  EXPECT_EQ(anew.arithmetic_hash, plan.arithmetic_hash);
  PlanDiff diff = diff_plans(plan, anew);
  ASSERT_EQ(diff.decisions.size(), 1u) << to_string(diff);
  EXPECT_NE(diff.decisions[0].find("': tower 1: sim:1 → sim:0"), std::string::npos) << diff.decisions[0];
  EXPECT_FALSE(diff.follows.empty());
  EXPECT_NE(to_string(diff).find(" (copy) is new on "), std::string::npos) << to_string(diff);
  EXPECT_TRUE(diff_plans(plan, read_back(text, plan)).empty());
}

TEST(PlanEdit, a_plan_from_its_file_gives_the_bits_of_the_original) {
  for (const char* name : {"decay", "batch_norm", "dropout", "embedding"}) {
    auto graph = graph_of(name);
    for (const NamedStrategy& s : strategies(4, 2)) {
      auto plan = std::make_shared<const PlacedGraph>(place(graph, s.strategy, sim_cluster(2), 7, {.fetches = fetches_of(*graph)}));
      auto again = std::make_shared<const PlacedGraph>(read_back(write_plan(*plan), *plan));
      std::vector<Outcome> outcomes;
      std::vector<std::map<std::string, HostTensor>> states;
      for (const auto& p : {plan, again}) {
        Program program(p, reference_kernels());
        for (int t = 0; t < static_cast<int>(program.threads().size()); ++t) program.prepare_thread(t);
        Runner runner(program);
        for (const auto& [variable, value] : state_for(*graph)) program.set_state(variable, value);
        auto feeds = feeds_for(*graph, 7);
        outcomes.push_back(runner.run(views(feeds)));
        ASSERT_FALSE(outcomes.back().error);
        states.emplace_back();
        for (NodeId w : graph->variables()) states.back().insert_or_assign(graph->node(w).name, program.state(graph->node(w).name));
      }
      EXPECT_TRUE(outcomes[0].fetched == outcomes[1].fetched) << name << ", " << s.name;
      EXPECT_TRUE(states[0] == states[1]) << name << ", " << s.name;
    }
  }
}

TEST(PlanEdit, the_text_over_1024_devices_is_hardly_longer_than_over_two) {
  for (const char* name : {"decay", "batch_norm_sync", "attention"}) {
    auto graph = graph_of(name);
    std::string two = write_plan(placed_over(graph, 2)), many_text;
    PlacedGraph many = placed_over(graph, 1024);
    many_text = write_plan(many);
    std::cout << name << ": " << two.size() << " bytes over 2 devices, " << many_text.size() << " over 1024\n";
    EXPECT_LE(static_cast<double>(many_text.size()), 1.2 * static_cast<double>(two.size())) << name;
    EXPECT_EQ(write_plan(read_back(many_text, many)), many_text);
  }
}

TEST(PlanEdit, fused_nodes_keep_their_members_and_the_graphs_order) {
  Builder b("fused");
  Value x = b.input("x", f32, {kBatch, 3}), w = b.variable("w", {3, 2}, {.init = "normal", .init_value = 0.3});
  Value y = matmul(x, w);
  Value aside = reduce_sum(square(x));
  Value z = relu(y);
  b.metric("z", z);
  b.metric("aside", aside);
  auto graph = std::make_shared<const Graph>(std::move(b).build());
  auto groups = [&](const Graph&) { return std::vector<FusionGroup>{{"matmul_relu", {y.id.node, z.id.node}}}; };
  PlaceOptions options{.fetches = {{"z", z.id}, {"aside", aside.id}}, .groups = groups};
  PlacedGraph plan = place(graph, to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .towers = 2, .threads = 1}), sim_cluster(2), 4, options);
  std::string text = write_plan(plan);
  EXPECT_NE(line_of(text, "relu").find("\"members\": [{\"name\": \"matmul\""), std::string::npos) << text;
  PlacedGraph again = read_back(text, plan);
  EXPECT_EQ(write_graph(*again.graph), write_graph(*graph));
  EXPECT_EQ(write_plan(again), text);
  PlanRequest request = request_of(again);
  ASSERT_EQ(request.groups.size(), 1u);
  EXPECT_EQ(request.groups[0].members, (std::vector<NodeId>{y.id.node, z.id.node}));
  PlaceOptions again_options{.fetches = request.fetches, .updates = request.updates};
  again_options.groups = [&](const Graph&) { return request.groups; };
  EXPECT_EQ(write_plan(place(again.graph, placement_of(again), again.cluster, again_options)), text);
}

TEST(PlanEdit, members_and_applied_updates_that_are_not_what_runs_are_objected_to) {
  Builder b("fused");
  Value x = b.input("x", f32, {kBatch, 3}), v = b.variable("v", {3, 2}, {.init = "normal", .init_value = 0.3}), w = b.variable("w", {3, 2}, {.init = "normal", .init_value = 0.3});
  Value y = matmul(x, w);
  Value z = relu(y);
  b.update(v, v * 0.5);
  b.update(w, w * 0.5);
  auto graph = std::make_shared<const Graph>(std::move(b).build());
  auto groups = [&](const Graph&) { return std::vector<FusionGroup>{{"matmul_relu", {y.id.node, z.id.node}}}; };
  PlacedGraph plan = place(graph, to_strategy(Single{.device = sims(1)[0], .threads = 1}), sim_cluster(1), 4, {.fetches = {{"z", z.id}}, .groups = groups});
  ASSERT_TRUE(verify(plan).empty()) << verify(plan)[0];
  const std::string text = write_plan(plan);
  auto objection = [&](const std::string& from, const std::string& to) {
    auto found = verify(read_back(swapped(text, from, to), plan));
    return found.empty() ? "" : found[0];
  };
  EXPECT_EQ(objection("\"inputs\": [\"x\", \"w\"], \"at\"", "\"inputs\": [\"x\", \"v\"], \"at\""), "dangling: 'relu' reads 'w', but in the graph it reads 'v'") << text;
  // The update of v is neither applied nor written.
  std::string line = line_of(text, "mul"), kept = swapped(line, "\"donates\": [[\"mul\", \"v\"]]", "\"donates\": []");
  auto found = verify(read_back(swapped(swapped(text, line, kept), "\"v\": \"mul\", ", ""), plan));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0], "state: 'v' is not updated, but in the graph it is");
}

TEST(PlanEdit, a_result_keeps_to_what_its_name_means) {
  PlacedGraph plan = placed_over(graph_of("decay"), 2);
  ASSERT_GE(plan.fetches.size(), 2u);
  const std::string text = write_plan(plan), line = "\"fetches\": {";
  const std::string a = plan.fetches[0].first, b = plan.fetches[1].first;
  auto pair = [](const std::string& name, const std::string& of) { return "\"" + name + "\": \"" + fetch_node(of) + "\""; };
  ASSERT_NE(text.find(line + pair(a, a)), text.npos) << text.substr(text.find(line), 200);
  EXPECT_TRUE(says([&] { read_back(swapped(swapped(text, pair(b, b), pair(b, a)), pair(a, a), pair(a, b)), plan); }, {"plan.json:", "/plan/fetches/" + a + ": the result '" + a + "' is what 'fetch/" + b + "' brings, not 'fetch/" + a + "'"}));
}

/// Five towers of four rows, and nothing else but a constant that they read.
TEST(PlanText, of_towers_alone_without_equal_shares_is_placed_anew) {
  Builder b("alone");
  b.output("y", b.input("x", f32, {kBatch, 3}) * constant(b.graph(), HostTensor(f32, {3})));
  auto graph = std::make_shared<const Graph>(std::move(b).build());
  const PlaceOptions options{.fetches = {{"y", graph->outputs[0]}}, .updates = false};
  const PlacedGraph plan = place(graph, to_strategy(Towers{.devices = sims(3), .variables = sims(1)[0], .towers = 5, .threads = 1}), sim_cluster(3), 4, options);
  EXPECT_EQ(write_plan(place(graph, placement_of(plan), plan.cluster, options)), write_plan(plan));
}

/// The towers without rows keep their devices, so that a larger batch is placed as it was.
TEST(PlanEdit, a_plan_for_one_row_knows_where_all_towers_are) {
  auto graph = graph_of("decay");
  for (const auto& [name, strategy] : strategies(3, 3)) {
    SCOPED_TRACE(name);
    const PlacedGraph plan = place(graph, strategy, sim_cluster(3), 7, {.fetches = fetches_of(*graph)}), one = derived_anew(plan, 1);
    EXPECT_TRUE(verify(one).empty());
    const std::string text = write_plan(one);
    EXPECT_EQ(write_plan(read_back(text, one)), text);
    EXPECT_EQ(write_plan(derived_anew(read_back(text, one), 7)), write_plan(plan));
    EXPECT_THAT(to_string(diff_plans(plan, one)), testing::Not(testing::HasSubstr(": tower")));
  }
}

TEST(PlanEdit, towers_that_are_raised_by_hand_are_dealt_to_all_devices) {
  const PlacedGraph two = placed_over(graph_of("decay"), 2);
  const PlacedGraph four = derived_anew(read_back(swapped(write_plan(two), "\"towers\": 2", "\"towers\": 4"), two));
  EXPECT_EQ(verify(four), std::vector<std::string>());
  for (const PlanNode& n : four.nodes)
    if (n.scope == Scope::tower) {
      const std::vector<int>& at = four.devices(n);
      EXPECT_EQ(at[0], at[1]) << n.name;
      EXPECT_EQ(at[2], at[3]) << n.name;
    }
  EXPECT_NE(four.devices(*std::find_if(four.nodes.begin(), four.nodes.end(), [](const PlanNode& n) { return n.scope == Scope::tower; }))[0], four.devices(*std::find_if(four.nodes.begin(), four.nodes.end(), [](const PlanNode& n) { return n.scope == Scope::tower; }))[2]);
  EXPECT_TRUE(says([&] { read_back(swapped(write_plan(two), "\"towers\": 2", "\"towers\": 1"), two); }, {"there is no tower 1", "belfry place GRAPH --towers 1"}));
}

TEST(PlanEdit, a_plan_that_begins_with_one_row_keeps_the_rules_of_all_towers) {
  auto graph = graph_of("decay");
  const Strategy strategy = to_strategy(Towers{.devices = sims(3), .variables = cpu(0), .towers = 3, .threads = 1});
  auto placed = [&](std::int64_t batch, const std::string& match, const DeviceId& device) {
    return place(graph, strategy, sim_cluster(3), batch, {.fetches = fetches_of(*graph), .rules = {{match, {device}, "by hand"}}, .must_decide = 1});
  };
  for (const char* match : {"tower_2/**", "tower_1/matmul", "tower_*/**"}) {
    SCOPED_TRACE(match);
    const PlacedGraph many = placed(7, match, sims(2)[1]), one = placed(1, match, sims(2)[1]);
    EXPECT_EQ(write_plan(derived_anew(read_back(write_plan(one), one), 7)), write_plan(many));
    EXPECT_TRUE(diff_plans(many, one).decisions == std::vector<std::string>{"batch 7 → 1"}) << to_string(diff_plans(many, one));
  }
  EXPECT_TRUE(says([&] { placed(1, "tower_2/**", sims(8)[7]); }, {"sim:7", "not among the devices of this plan"}));
  EXPECT_TRUE(says([&] { placed(1, "tower_2/nonsense", sims(1)[0]); }, {"the rule \"tower_2/nonsense\" matches no node"}));
  const PlacedGraph one = placed(1, "tower_2/**", sims(2)[1]), moved = placed(1, "tower_2/**", sims(1)[0]);
  EXPECT_THAT(diff_plans(one, moved).decisions, testing::Contains(testing::EndsWith(": tower 2: sim:1 → sim:0")));
}

TEST(Diff, names_what_is_computed_otherwise) {
  auto graph = graph_of("decay");
  auto other = std::make_shared<Graph>(*graph);
  Node& variable = other->edit(other->variables().front());
  variable.attributes.set("init", std::string("ones"));
  other->metrics["more"] = {other->variables().front(), 0};
  const PlanDiff diff = diff_plans(placed_over(graph, 2), placed_over(other, 2));
  EXPECT_THAT(diff.arithmetic, testing::Contains(testing::StartsWith("'" + variable.name + "': init "))) << to_string(diff);
  EXPECT_THAT(diff.arithmetic, testing::Contains(testing::HasSubstr("more = " + variable.name))) << to_string(diff);
  EXPECT_TRUE(diff_plans(placed_over(graph, 2), placed_over(std::make_shared<Graph>(*graph), 2)).empty());
}

TEST(Diff, names_every_kind_of_decision) {
  auto graph = graph_of("decay");
  PlacedGraph a = placed_over(graph, 2), b = placed_over(graph, 3);
  std::string text = to_string(diff_plans(a, b));
  EXPECT_NE(text.find("decision: towers 2 → 3\n"), text.npos) << text;
  EXPECT_NE(text.find("decision: batch 6 → 9\n"), text.npos);
  EXPECT_NE(text.find("decision: device sim:2 is new\n"), text.npos);
  EXPECT_NE(text.find("follows: the arithmetic differs"), text.npos);
  PlacedGraph threads = a, links = a;
  threads.streams.back().thread += 7;
  links.cluster.links.push_back({{sims(1)[0]}, "switch", 1e9, 0});
  EXPECT_NE(to_string(diff_plans(a, threads)).find("of host thread"), text.npos);
  EXPECT_NE(to_string(diff_plans(a, links)).find("decision: links"), text.npos);
  PlacedGraph other = a;
  other.placement.options = "-O reduction=hierarchical";
  const PlacedGraph read = read_back(write_plan(other), other);
  EXPECT_EQ(placement_of(read).options, other.placement.options);
  EXPECT_EQ(to_string(diff_plans(a, read)), "follows: made by towers → towers -O reduction=hierarchical\n");
}

TEST(Diff, names_what_one_plan_alone_computes_inside_a_fused_node) {
  auto placed = [](bool scaled, bool fused) {
    Builder b("fused");
    Value x = b.input("x", f32, {kBatch, 3}), w = b.variable("w", {3, 2}, {.init = "normal", .init_value = 0.3});
    Value y = matmul(x, w), s = scaled ? square(y) : y, z = relu(s);
    b.metric("z", z);
    std::vector<NodeId> group = scaled ? std::vector<NodeId>{y.id.node, s.id.node, z.id.node} : std::vector<NodeId>{y.id.node, z.id.node};
    PlaceOptions options{.fetches = {{"z", z.id}}};
    if (fused) options.groups = [=](const Graph&) { return std::vector<FusionGroup>{{"matmul_relu", group}}; };
    return place(std::make_shared<const Graph>(std::move(b).build()), to_strategy(Single{.device = sims(1)[0], .threads = 1}), sim_cluster(1), 4, options);
  };
  const PlacedGraph with = placed(true, true), without = placed(false, true), apart = placed(false, false);
  EXPECT_THAT(diff_plans(with, without).follows, testing::Contains("'square' (square), computed inside 'relu', is gone from sim:0"));
  EXPECT_THAT(diff_plans(without, with).follows, testing::Contains(testing::StartsWith("'square' (square), computed inside 'relu', is new on sim:0")));
  EXPECT_THAT(to_string(diff_plans(without, with)), testing::Not(testing::HasSubstr("'matmul'")));
  EXPECT_THAT(diff_plans(without, apart).follows, testing::Contains(testing::AllOf(testing::StartsWith("'matmul' (matmul) is new on sim:0"), testing::EndsWith("; it was computed inside 'relu'"))));
  EXPECT_THAT(diff_plans(apart, without).follows, testing::Contains("'matmul' (matmul) is gone from sim:0; it is computed inside 'relu'"));
}

TEST(Diff, says_how_unlike_graphs_differ) {
  auto built = [](std::int64_t width, bool second) {
    Builder b("g");
    Value y = matmul(b.input("x", f32, {kBatch, 3}), b.variable("w", {3, width}));
    if (second) y = y + b.variable("offset", {width});
    b.output(y);
    return std::move(b).build();
  };
  EXPECT_EQ(unlike_graphs(built(2, false), built(2, false)).how, "");
  EXPECT_EQ(unlike_graphs(built(2, false), built(2, true)).how, "the variable 'offset' is in the second alone");
  EXPECT_FALSE(unlike_graphs(built(2, false), built(2, true)).types);
  const UnlikeGraphs both = unlike_graphs(built(2, true), built(4, false));
  EXPECT_EQ(both.how, "the variable 'w' is f32(3, 2) in the first and f32(3, 4) in the second, and 1 more");
  EXPECT_TRUE(both.types);
}

// ---------------------------------------------------------------- placement and cluster files

TEST(PlacementFile, of_a_plan_reads_back_and_derives_it_anew) {
  PlacedGraph plan = placed_over(graph_of("decay"), 3);
  Placement placement = placement_of(plan);
  std::string text = write_placement(placement);
  PlacementFile file = read_placement(text, "p.json");
  EXPECT_EQ(file.rules, placement.rules);
  EXPECT_EQ(file.towers, 3);
  EXPECT_EQ(file.batch, 9);
  Placement anew{*file.towers, *file.batch, *file.combine, *file.threads, file.rules, *file.order, file.recompute, placement.strategy};
  EXPECT_EQ(write_plan(place(plan.graph, anew, plan.cluster, {.fetches = request_of(plan).fetches, .must_decide = file.rules.size()})), write_plan(plan));
}

TEST(PlacementFile, of_a_plan_that_is_mostly_in_ranges_puts_no_constant_there) {
  Builder b("net");
  Value half = b.variable("w", {300}, {.init = "ones"}) * 0.5f;
  const std::string name = half.name();
  const PlaceOptions options{.fetches = {{"half", half.id}}, .updates = false};
  auto graph = std::make_shared<const Graph>(std::move(b).build());
  const PlacedGraph plan = place(graph, Placement{.batch = 2, .rules = {{"w", sims(2), "by hand", true}, {name, sims(2), "by hand", true}, {"**", {cpu(0)}, "the rest"}}}, sim_cluster(2), options);
  EXPECT_EQ(write_plan(place(graph, placement_of(plan), plan.cluster, options)), write_plan(plan));
}

TEST(PlacementFile, the_example_places_two_towers) {
  auto graph = graph_of("decay");
  PlacementFile file = read_placement(R"({"belfry": 1, "towers": 2, "placement": [{"match": "tower_1/**", "device": "cpu:1"}, {"match": "**", "device": "cpu:0", "note": "the rest"}]})", "p.json");
  Placement p{*file.towers, 4, Combine::global_mean, 1, file.rules, PhaseOrder::by_tower, file.recompute, "file"};
  PlacedGraph plan = place(graph, p, local_cluster({cpu(0), cpu(1)}, 2), {.fetches = fetches_of(*graph), .must_decide = file.rules.size()});
  EXPECT_TRUE(verify(plan).empty());
  EXPECT_EQ(plan.vectors, (std::vector<std::vector<int>>{{0, 1}}));
}

TEST(PlacementFile, that_is_none_is_refused_with_the_place) {
  EXPECT_NE(message_of([] { read_placement(R"({"belfry": 1, "placement": [{"match": "**", "device": "cpu:0,cpu:0"}]})", "p.json"); }).find("p.json:1: /placement/0/device: 'cpu:0,cpu:0': device cpu:0 is named twice"), std::string::npos);
  EXPECT_NE(message_of([] { read_placement(R"({"belfry": 1, "towers": 0, "placement": []})", "p.json"); }).find("p.json:1: /towers: is 0; it must lie in [1, 65536]"), std::string::npos);
}

TEST(ClusterFile, reads_back_and_refuses_what_is_no_machine) {
  Cluster c = sim_cluster(5, true, 2);
  c.devices[3].memory = 1 << 20;
  c.devices[4].space = "host";
  c.unlinked = {{"sim:0", "sim:1"}};
  c.host_memory = {1 << 30, 0};
  EXPECT_EQ(read_cluster(write_cluster(c), "c.json"), c);
  auto of = [](const std::string& text) { return message_of([&] { read_cluster(text, "c.json"); }); };
  EXPECT_NE(of(R"({"belfry": 1, "devices": [{"devices": "sim:0-1"}]})").find("needs a cpu device on host 0"), std::string::npos);
  EXPECT_NE(of(R"({"belfry": 1, "devices": [{"devices": "cpu:0"}, {"devices": "cpu:0-1"}]})").find("device cpu:0 is named twice"), std::string::npos);
  for (auto [some, more] : {std::pair("gpu:0-1", "gpu:1/0"), {"gpu:1/0", "gpu:0-1"}})
    EXPECT_NE(of(fmt::format(R"({{"belfry": 1, "devices": [{{"devices": "cpu:0"}}, {{"devices": "{}"}}, {{"devices": "{}"}}]}})", some, more)).find("/devices/2/devices: gpu:1 and its slice gpu:1/0 are one GPU"), std::string::npos) << some;
  EXPECT_NE(of(R"({"belfry": 1, "unlinked": [["cpu:0", "cpu:7"]], "devices": [{"devices": "cpu:0"}]})").find("no device has the memory space 'cpu:7'"), std::string::npos);
  EXPECT_NE(of(R"({"belfry": 1, "devices": [{"devices": "cpu:0", "memory": -1}]})").find("/devices/0/memory: is -1"), std::string::npos);
}

}  // namespace
}  // namespace belfry::test
