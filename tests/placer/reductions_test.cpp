#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/links.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

#include "plans.h"
#include "ran_as_planned.h"
#include "says.h"

namespace belfry::test {
namespace {

/// Layers of two sizes with biases, the gradients held to one norm.
std::shared_ptr<const Graph> some_layers(int count, std::int64_t width) {
  Builder b("some_layers");
  Value h = b.input("x", f32, {kBatch, width});
  for (int k = 0; k < count; ++k)
    h = tanh(matmul(h, b.variable("w" + std::to_string(k), {width, width}, {.init = "glorot_uniform"})) + b.variable("b" + std::to_string(k), {width}));
  b.minimize(mean(square(h)), Momentum{.learning_rate = 0.1}, {.clip_norm = 0.5});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

/// Devices of one kind on switches, so many on each; the host joins them.
Cluster grouped(const std::string& kind, int groups, int each, double inside, double between, double latency = 1e-5) {
  Cluster c;
  c.cores = 2;
  for (int g = 0; g < groups; ++g) {
    ClusterLink link{{}, "switch" + std::to_string(g), inside, latency};
    for (int i = 0; i < each; ++i) {
      DeviceId id{0, kind, g * each + i, -1};
      ClusterDevice d{id, to_string(id)};
      if (kind == "gpu") d.flops = 1e13, d.bandwidth = 1e12, d.launch = 5e-6;
      c.devices.push_back(d);
      link.devices.push_back(id);
    }
    c.links.push_back(link);
    c.links.push_back({{cpu(0)}, link.to, between, latency});
  }
  c.devices.push_back({cpu(0), "host"});
  if (kind == "gpu") c.devices.back().flops = c.devices.back().bandwidth = 1e11;
  return c;
}

std::vector<DeviceId> all_of(const Cluster& c) {
  std::vector<DeviceId> out;
  for (const ClusterDevice& d : c.devices)
    if (d.id.kind != "cpu") out.push_back(d.id);
  return out;
}

std::shared_ptr<const PlacedGraph> reduced(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, const Cluster& cluster, std::int64_t batch = 9) {
  return std::make_shared<const PlacedGraph>(place(graph, strategy, cluster, batch, {.fetches = fetches_of(*graph)}));
}

/// What is fetched goes to the host, over ways that are not looked at here.
std::shared_ptr<const PlacedGraph> unfetched(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, const Cluster& cluster, std::int64_t batch) {
  return std::make_shared<const PlacedGraph>(place(graph, strategy, cluster, batch));
}

std::string devices_of(const PlacedGraph& plan, const PlanNode& n) {
  std::vector<DeviceId> out;
  for (int d : n.holders) out.push_back(plan.cluster.devices[static_cast<std::size_t>(d)].id);
  return to_string(out);
}

int count_of(const PlacedGraph& plan, const std::function<bool(const PlanNode&)>& f) { return static_cast<int>(std::count_if(plan.nodes.begin(), plan.nodes.end(), f)); }

TEST(Reductions, along_the_tree_have_the_same_bits_whoever_adds) {
  auto graph = some_layers(2, 16);
  for (int T : {4, 6}) {  // of six, a group's three towers are no subtree
    const Cluster cluster = grouped("sim", 2, T == 4 ? 2 : 3, 1e10, 1e9), fewer = grouped("sim", 2, 2, 1e10, 1e9);
    const auto devices = all_of(cluster);
    auto one = reduced(graph, to_strategy(Single{.device = devices[0], .towers = T, .threads = 1}), cluster);
    const Tensors want = trained(one, 3, reference_kernels());
    const Mirrored m{.devices = devices, .towers = T, .threads = 1};
    auto with = [](auto s, auto change) { return change(s), to_strategy(s); };
    std::vector<NamedStrategy> all = {{"to one", with(m, [](Mirrored& s) { s.reduction = Reduce::to_one; })},
                                      {"hierarchical", with(m, [](Mirrored& s) { s.reduction = Reduce::hierarchical, s.bucket = 0; })},
                                      {"hierarchical in buckets", with(m, [](Mirrored& s) { s.reduction = Reduce::hierarchical, s.bucket = 200; })},
                                      {"one bucket", with(m, [](Mirrored& s) { s.bucket = 1 << 20; })},
                                      {"buckets", with(m, [](Mirrored& s) { s.bucket = 200; })},
                                      {"sharded", to_strategy(Sharded{.devices = devices, .towers = T, .threads = 1, .reduction = Reduce::hierarchical})},
                                      {"towers", to_strategy(Towers{.devices = devices, .towers = T, .threads = 1, .reduction = Reduce::hierarchical})},
                                      {"chosen", to_strategy(Towers{.devices = devices, .towers = T, .threads = 1, .chosen = true})}};
    if (T == 6) all.push_back({"several towers a device", to_strategy(Mirrored{.devices = all_of(fewer), .towers = T, .threads = 1, .reduction = Reduce::hierarchical})});
    for (const auto& [name, strategy] : all) {
      auto plan = reduced(graph, strategy, name[0] == 's' && name[1] == 'e' ? fewer : cluster);
      ASSERT_EQ(verify(*plan), std::vector<std::string>()) << name;
      EXPECT_EQ(plan->arithmetic_hash, one->arithmetic_hash) << name;
      for (const auto& [variable, value] : trained(plan, 3, reference_kernels())) EXPECT_TRUE(want.at(variable) == value) << name << ": " << variable;
      PlacedGraph again = place(graph, placement_of(*plan), plan->cluster, {.fetches = fetches_of(*graph)});
      EXPECT_EQ(write_plan(again), write_plan(*plan)) << name;
    }
  }
}

TEST(Reductions, that_most_nodes_have_are_still_rules_of_their_sums_alone) {
  Builder b("sums");
  Value x = b.input("x", f32, {kBatch, 4});
  Value all = constant(b.graph(), HostTensor::scalar<float>(2));
  for (int k = 1; k < 6; ++k) all = tanh(all + reduce_sum(square(x + static_cast<float>(k))));
  b.metric("all", all);
  const auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  const PlaceOptions options{.fetches = fetches_of(*graph)};
  Placement p{2, 8, Combine::global_mean, 1, {}};
  std::vector<PlacementRule> apart;
  for (const PlanNode& n : place(graph, to_strategy(Towers{.devices = sims(2), .threads = 1}), sim_cluster(2), 8, options).nodes)
    if (n.op == kAggregate) p.rules.push_back({n.name, {sims(2)[0]}, "in a bucket", false, SumWay::direct, 1});
    else if (n.scope == Scope::shared && n.def && !n.def->source) apart.push_back({n.name, {sims(2)[1]}, "apart: " + n.name});
  ASSERT_GT(p.rules.size(), 2u);
  p.rules.insert(p.rules.end(), apart.begin(), apart.end());
  p.rules.insert(p.rules.end(), {{"tower_*/**", sims(2), "a tower per device"}, {"**", {sims(2)[0]}, "the rest"}});
  const PlacedGraph plan = place(graph, p, sim_cluster(2), options);
  EXPECT_EQ(write_plan(place(graph, placement_of(plan), plan.cluster, options)), write_plan(plan));
}

TEST(Reductions, round_a_ring_say_that_their_bits_are_others) {
  auto graph = some_layers(2, 24);
  const Cluster cluster = sim_cluster(4);
  auto tree = reduced(graph, to_strategy(Mirrored{.devices = sims(4), .threads = 1}), cluster), ring = reduced(graph, to_strategy(Mirrored{.devices = sims(4), .threads = 1, .reduction = Reduce::ring}), cluster);
  EXPECT_EQ(verify(*ring), std::vector<std::string>());
  EXPECT_NE(tree->arithmetic_hash, ring->arithmetic_hash);
  const Tensors a = trained(tree, 2, reference_kernels()), b = trained(ring, 2, reference_kernels()), again = trained(ring, 2, reference_kernels());
  double apart = 0;
  int differ = 0;
  for (const auto& [name, value] : a) {
    EXPECT_TRUE(b.at(name) == again.at(name)) << name;
    differ += !(b.at(name) == value);
    for (std::int64_t i = 0; value.dtype() == f32 && i < value.elements(); ++i)
      apart = std::max(apart, std::abs(static_cast<double>(value.data<float>()[static_cast<std::size_t>(i)]) - b.at(name).data<float>()[static_cast<std::size_t>(i)]));
  }
  EXPECT_GT(differ, 0) << "four numbers are added in another order";
  EXPECT_LT(apart, 1e-6);
  PlacedGraph read = place(graph, placement_of(*ring), cluster, {.fetches = fetches_of(*graph)});
  EXPECT_EQ(write_plan(read), write_plan(*ring));
  PlacedGraph damaged = *ring;
  std::find_if(damaged.nodes.begin(), damaged.nodes.end(), [](const PlanNode& n) { return n.op == kAggregate && !n.ranged; })->sum = SumWay::ring;
  EXPECT_THAT(verify(damaged), testing::Contains(testing::HasSubstr("round a ring, but not in ranges")));
}

TEST(Reductions, by_a_library_are_said_in_the_plan_and_have_a_hash_of_their_own) {
  auto graph = some_layers(2, 16);
  const Cluster cluster = grouped("gpu", 1, 4, 1e10, 1e9);
  for (const char* name : {"mirrored", "sharded"}) {
    const auto defs = standard_strategies();
    auto placed_with = [&](const std::string& collectives) {
      auto def = std::find_if(defs.begin(), defs.end(), [&](const StrategyDef& d) { return d.name == name; });
      return place(graph, def->make(all_of(cluster), {{"collectives", collectives}}), cluster, 8, {.fetches = fetches_of(*graph)});
    };
    const PlacedGraph tree = placed_with("tree"), fastest = placed_with("fastest");
    EXPECT_EQ(verify(fastest), std::vector<std::string>()) << name;
    EXPECT_NE(fastest.arithmetic_hash, tree.arithmetic_hash) << name;
    auto by_library = [](const PlanNode& n) { return std::any_of(n.by_group.begin(), n.by_group.end(), [](const Variant& v) { return v.kernel == "nccl"; }); };
    EXPECT_GT(count_of(fastest, by_library), 3) << name;
    EXPECT_EQ(count_of(tree, by_library), 0) << name;
    EXPECT_EQ(write_plan(place(graph, placement_of(fastest), cluster, {.fetches = fetches_of(*graph)})), write_plan(fastest)) << name;
    PlacedGraph damaged = fastest;
    damaged.placement.collectives = Collectives::tree;
    EXPECT_THAT(verify(damaged), testing::Contains(testing::HasSubstr("names 'nccl'"))) << name;
  }
}

/// The second GPU alone keeps one of two weights, and towers take something from the host, which the first GPU waits for.
TEST(Reductions, by_a_library_run_where_all_their_ranks_have_come_to_them) {
  Builder b("beside_the_host");
  Value x = b.input("x", f32, {kBatch, 4}), kept = matmul(x, b.variable("v", {4, 4})), w = b.variable("w", {4, 4});
  b.minimize(mean(kept + tanh(matmul(x, w))), Sgd{.learning_rate = 0.1f});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  const std::vector<DeviceId> gpus = parse_devices("gpu:0-1"), second = {gpus[1]};
  const std::vector<PlacementRule> rules = {{"tanh", {cpu(0)}, "by hand"}, {"w", second, "by hand"}, {"sgd/w", second, "by hand"}, {"gradient/matmul_1/*.aggregate", second, "by hand"}};
  const PlacedGraph plan = place(graph, to_strategy(Mirrored{.devices = gpus, .threads = 1, .collectives = Collectives::fastest}), local_cluster({gpus[0], gpus[1], cpu(0)}, 2), 8, {.fetches = fetches_of(*graph), .rules = rules});
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  const BoundPlan bound(plan);
  const auto order = legal_order(bound);
  int collectives = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    auto step = [&](std::size_t at) -> const Step& { return bound.streams[static_cast<std::size_t>(order[at].first)][static_cast<std::size_t>(order[at].second)]; };
    if (!is_collective(step(i).variant)) continue;
    ++collectives;
    ASSERT_LT(i + 1, order.size());
    EXPECT_EQ(step(i).node, step(i + 1).node) << "other steps between";
    ++i;
  }
  EXPECT_GT(collectives, 0);
}

/// Eight GPUs in two halves: each has links to its own half and to one of the other, as wide.
TEST(Reductions, groups_of_a_mesh_are_those_of_which_each_is_linked_to_each) {
  Cluster c = local_cluster(parse_devices("gpu:0-7,cpu:0"), 1);
  auto link = [&](int a, const std::string& to, double bandwidth) { c.links.push_back({{{0, "gpu", a, -1}}, to, bandwidth, 0}); };
  for (int a = 0; a < 8; ++a)
    for (int b = a + 1; b < 8; ++b)
      if (a / 4 == b / 4 || b == a + 4) link(b, fmt::format("gpu:{}", a), 2e10);
  for (int a = 0; a < 8; ++a) link(a, fmt::format("pcie{}", a / 2), 1e10);
  EXPECT_THAT(link_groups(c), testing::ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2));
  for (ClusterLink& l : c.links) l.bandwidth = 1e10;
  EXPECT_THAT(link_groups(c), testing::ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 4)) << "a switch that is as wide";
}

TEST(Reductions, by_groups_go_by_way_of_one_device_of_each) {
  auto graph = some_layers(2, 16);
  const Cluster cluster = grouped("sim", 2, 2, 1e10, 1e9);
  EXPECT_THAT(link_groups(cluster), testing::ElementsAre(0, 0, 1, 1, testing::_));
  auto plan = reduced(graph, to_strategy(Mirrored{.devices = sims(4), .threads = 1, .reduction = Reduce::hierarchical}), cluster);
  int groups = 0, copies = 0;
  for (const PlanNode& n : plan->nodes) {
    if (n.sum == SumWay::groups || n.op == kPreAggregate) {
      EXPECT_EQ(devices_of(*plan, n), "sim:0,sim:2") << n.name;
      groups += n.op == kPreAggregate;
    }
    if (n.op != kCopy || plan->maker(n.inputs[0]).holders.size() < 2) continue;
    ++copies;
    const Instances instances(*plan);
    for (const Move& m : moves_of(instances, n)) EXPECT_EQ(m.from / 2, m.to / 2) << "a sum is copied inside its group";
  }
  EXPECT_GT(groups, 3);
  EXPECT_GT(copies, 3);
  PlacedGraph edited = *plan;
  std::find_if(edited.nodes.begin(), edited.nodes.end(), [](const PlanNode& n) { return n.scope == Scope::state; })->sum = SumWay::groups;
  EXPECT_THAT(verify(edited), testing::Contains(testing::HasSubstr("is no sum, but is said to be added with others, or in a way")));
  EXPECT_THAT(message_of([&] { reduced(graph, to_strategy(Mirrored{.devices = sims(2), .reduction = Reduce::hierarchical}), cluster); }), testing::HasSubstr("one group"));
  EXPECT_THAT(message_of([&] { reduced(graph, to_strategy(Sharded{.devices = sims(2), .reduction = Reduce::to_one}), cluster); }), testing::HasSubstr("[sharded]"));
  EXPECT_THAT(message_of([&] { place(graph, Placement{.rules = {{"w0", {sims(1)}, "", false, SumWay::ring}, {"**", {sims(1)}, ""}}}, cluster); }), testing::HasSubstr("no aggregate"));
}

TEST(Reductions, are_forecast_by_their_moves) {
  auto graph = some_layers(6, 512);
  auto seconds = [&](const Cluster& cluster, Reduce way) { return forecast(*unfetched(graph, to_strategy(Mirrored{.devices = all_of(cluster), .threads = 1, .reduction = way}), cluster, 64)).seconds; };
  // One fast switch: each to each is the least. Slow ways between groups: one device of each. Few bytes and a long latency: once is better than twice.
  const Cluster one = grouped("gpu", 1, 8, 1e10, 1e9), apart = grouped("gpu", 2, 4, 1e11, 1e9), far = grouped("gpu", 1, 4, 1e12, 1e12, 1e-3);
  EXPECT_LT(seconds(one, Reduce::tree), 0.6 * seconds(one, Reduce::to_one));
  EXPECT_LT(seconds(apart, Reduce::hierarchical), 0.6 * seconds(apart, Reduce::tree));
  EXPECT_LT(seconds(apart, Reduce::hierarchical), seconds(apart, Reduce::to_one));
  EXPECT_LT(seconds(far, Reduce::tree), 1.01 * seconds(far, Reduce::to_one));
}

TEST(Buckets, are_as_large_as_the_forecast_asks_for) {
  auto graph = some_layers(12, 128);
  auto plan_of = [&](const Cluster& cluster, std::optional<std::int64_t> bytes) { return unfetched(graph, to_strategy(Mirrored{.devices = all_of(cluster), .threads = 1, .bucket = bytes}), cluster, 64); };
  auto bucketed = [](const PlacedGraph& plan) {
    std::set<int> out;
    for (const PlanNode& n : plan.nodes) out.insert(n.bucket);
    return static_cast<int>(out.size()) - 1;
  };
  const Cluster late = grouped("gpu", 1, 4, 1e10, 1e9, 1e-4), prompt = grouped("gpu", 1, 4, 1e9, 1e9, 1e-9);
  auto chosen = plan_of(late, {}), none = plan_of(late, 0);
  EXPECT_EQ(verify(*chosen), std::vector<std::string>());
  EXPECT_GE(bucketed(*chosen), 1);
  EXPECT_EQ(bucketed(*none), 0);
  EXPECT_LT(forecast(*chosen).seconds, 0.7 * forecast(*none).seconds) << "a latency each";
  for (const Cluster& cluster : {late, prompt})
    for (std::int64_t bytes : {0, 1'000'000, 5'000'000, 1 << 30}) EXPECT_LE(forecast(*plan_of(cluster, {})).seconds, forecast(*plan_of(cluster, bytes)).seconds * (1 + 1e-9)) << bytes;
  // Of a plan of very many launches no step is walked for each size: there the sums alone decide.
  const Cluster wide = grouped("gpu", 1, 64, 1e10, 1e9, 1e-4);
  const auto many = unfetched(some_layers(60, 8), to_strategy(Mirrored{.devices = all_of(wide), .threads = 1}), wide, 64);
  auto by_sums = std::find_if(many->nodes.begin(), many->nodes.end(), [](const PlanNode& n) { return n.bucket > 0; });
  ASSERT_NE(by_sums, many->nodes.end());
  EXPECT_THAT(by_sums->reason, testing::HasSubstr("all added"));
  auto first = std::find_if(chosen->nodes.begin(), chosen->nodes.end(), [](const PlanNode& n) { return n.bucket > 0; });
  EXPECT_THAT(first->reason, testing::AllOf(testing::HasSubstr("bucket "), testing::HasSubstr("a plain step takes"), testing::HasSubstr("none ")));
  EXPECT_LE(forecast(*plan_of(prompt, {})).seconds, 1.001 * forecast(*plan_of(prompt, 0)).seconds);
}

TEST(Buckets, that_are_damaged_are_found) {
  const Cluster cluster = sim_cluster(2);
  auto plan = reduced(some_layers(3, 16), to_strategy(Mirrored{.devices = sims(2), .threads = 1, .bucket = 400}), cluster);
  ASSERT_EQ(verify(*plan), std::vector<std::string>());
  auto found = [&](const std::function<void(std::vector<PlanNode*>, PlacedGraph&)>& damage) {
    PlacedGraph damaged = *plan;
    std::vector<PlanNode*> members;
    for (PlanNode& n : damaged.nodes)
      if (n.bucket) members.push_back(&n);
    std::sort(members.begin(), members.end(), [](PlanNode* a, PlanNode* b) { return a->order < b->order; });
    damage(members, damaged);
    return verify(damaged);
  };
  using testing::Contains, testing::HasSubstr;
  ASSERT_GE(count_of(*plan, [](const PlanNode& n) { return n.bucket > 0; }), 4);
  // One of another bucket, one that comes too late, one that is added elsewhere, one that is no sum.
  EXPECT_THAT(found([](auto m, auto&) { m.front()->bucket = m.back()->bucket; }), Contains(HasSubstr("bucket: ")));
  EXPECT_THAT(found([](auto m, auto&) { m[1]->bucket = 0; m[0]->bucket = m[2]->bucket = m[1]->order + 7; }), Contains(HasSubstr("bucket: ")));
  EXPECT_THAT(found([](auto m, auto&) { m[0]->sum = SumWay::groups; }), Contains(HasSubstr("bucket: ")));
  EXPECT_THAT(found([](auto m, auto& p) { std::find_if(p.nodes.begin(), p.nodes.end(), [](const PlanNode& n) { return n.scope == Scope::tower; })->bucket = m[0]->bucket; }), Contains(HasSubstr("bucket: ")));
}

TEST(Buckets, of_sums_that_are_unlike_are_refused_with_the_rules_that_made_them) {
  const std::vector<DeviceId> two = sims(2), one = sims(1), turned = {two[1], two[0]};
  auto sums_of = [](const std::shared_ptr<const Graph>& graph) {
    std::vector<std::string> out;
    for (const PlanNode& n : expand(graph, {.towers = 2, .batch = 8}).nodes)
      if (n.op == kAggregate && n.attributes.text("how") == "sum") out.push_back(n.name);
    return out;
  };
  auto of = [&](const std::shared_ptr<const Graph>& graph, PlacementRule a, PlacementRule b) {
    a.bucket = b.bucket = 3;
    return message_of([&] { place(graph, Placement{2, 8, Combine::global_mean, 1, {a, b, {"**", two, ""}}}, sim_cluster(2)); });
  };
  auto graph = some_layers(2, 16);
  std::vector<std::string> wide;
  const TowerGraph tg = expand(graph, {.towers = 2, .batch = 8});
  for (const PlanNode& n : tg.nodes)
    if (n.op == kAggregate && objection_to_ranges(tg, n, 2).empty()) wide.push_back(n.name);
  ASSERT_GE(wide.size(), 2u);
  const PlacementRule first{wide[0], two, ""};
  EXPECT_EQ(of(graph, first, {wide[1], two, ""}), "(no error)");
  EXPECT_THAT(of(graph, first, {wide[1], two, "", false, SumWay::ring}), testing::HasSubstr("adds '" + wide[1] + "' round a ring, which goes over ranges: write \"ranges\": true"));
  EXPECT_EQ(of(graph, first, {wide[1], one, ""}), "'" + wide[0] + "' and '" + wide[1] + "' are in bucket 3 by the rules \"" + wide[0] + "\" and \"" + wide[1] + "\", but one is on sim:0-1, the other on sim:0; give them buckets of their own, or make the rules alike");
  EXPECT_THAT(of(graph, first, {wide[1], turned, ""}), testing::HasSubstr("the other on sim:1,sim:0"));
  EXPECT_THAT(of(graph, first, {wide[1], two, "", true}), testing::HasSubstr("one is in ranges, the other whole"));
  EXPECT_THAT(of(graph, first, {wide[1], two, "", false, SumWay::groups}), testing::HasSubstr("one is added by way of direct, the other of groups"));
  auto normed = std::make_shared<const Graph>(training_graph(net("batch_norm_sync")));
  const std::vector<std::string> sums = sums_of(normed);
  EXPECT_THAT(of(normed, {sums.front(), two, ""}, {sums.back(), two, ""}), testing::HasSubstr("towers read what lies between them"));
}

TEST(Chosen, variables_lie_where_the_busiest_way_is_busy_the_least) {
  auto graph = some_layers(4, 64);
  // A host behind slow ways: variables go to the GPUs, dealt over them.
  const Cluster slow = grouped("gpu", 1, 2, 1e10, 1e8);
  auto plan = unfetched(graph, to_strategy(Towers{.devices = all_of(slow), .threads = 1, .chosen = true}), slow, 16);
  EXPECT_EQ(verify(*plan), std::vector<std::string>());
  std::map<std::string, int> held;
  for (const PlanNode& n : plan->nodes)
    if (n.scope == Scope::state && n.name[0] == 'w') {
      ++held[devices_of(*plan, n)];
      EXPECT_THAT(n.reason, testing::AllOf(testing::HasSubstr("chosen by cost"), testing::HasSubstr("on cpu:0")));
    }
  EXPECT_EQ(held, (std::map<std::string, int>{{"gpu:0", 2}, {"gpu:1", 2}}));
  auto seconds = [&](const Towers& t) { return forecast(*unfetched(graph, to_strategy(t), slow, 16)).seconds; };
  EXPECT_LT(forecast(*plan).seconds, seconds(Towers{.devices = all_of(slow), .threads = 1}));
}

}  // namespace
}  // namespace belfry::test
