#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/graph/plan/over_memory.h>

#include "all_groups.h"
#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

/// The matmul of two asks for a device; its gradients follow it.
std::shared_ptr<const Graph> asking(const std::string& device) {
  Builder b("asking");
  Value h = relu(matmul(b.input("x", f32, {kBatch, 8}), b.variable("w", {8, 32}, {.init = "normal", .init_value = 0.3})));
  {
    auto on = b.device(device);
    h = matmul(h, b.variable("v", {32, 4}, {.init = "normal", .init_value = 0.3}));
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

struct Placed {
  PlacedGraph plan;
  std::vector<std::string> warnings;
  std::string where(const std::string& node) const {
    for (const PlanNode& n : plan.nodes)
      if (n.name == node) return to_string(plan.cluster.devices[static_cast<std::size_t>(all_devices(plan, n).front())].id);
    return "nowhere";
  }
  std::string reason(const std::string& node) const {
    for (const PlanNode& n : plan.nodes)
      if (n.name == node) return n.reason;
    return "";
  }
};

Placed placed(const std::string& device, bool soft, const Cluster& cluster, PlaceOptions options = {}) {
  Placed out;
  options.soft = soft;
  options.warn = [&](const std::string& text) { out.warnings.push_back(text); };
  out.plan = place(asking(device), to_strategy(Single{.device = sims(1)[0], .threads = 1}), cluster, 4, options);
  if (over_memory(out.plan).empty()) {
    EXPECT_EQ(verify(out.plan), std::vector<std::string>());
  }
  return out;
}

TEST(Requests, of_a_device_that_is_not_there_name_the_node_and_two_ways_out) {
  EXPECT_TRUE(says([] { placed("sim:7", false, sim_cluster(2)); }, {"' is requested on sim:7, which is not among the devices of this plan: sim:0-1,cpu:0", "--devices", "--soft-placement"}));
  // One that a rule before it overrules is none.
  EXPECT_NO_THROW(placed("sim:7", false, sim_cluster(2), {.rules = {{"**", {cpu(0)}, "by hand"}}}));
}

TEST(Requests, that_are_soft_give_way_with_a_warning_and_a_reason) {
  EXPECT_EQ(placed("sim:1", true, sim_cluster(2)).where("matmul_1"), "sim:1");
  Placed p = placed("sim:7", true, sim_cluster(2));
  EXPECT_EQ(p.where("matmul_1"), "sim:0");
  EXPECT_EQ(p.reason("matmul_1"), "requested on sim:7, which is not among the devices; single");
  ASSERT_EQ(p.warnings.size(), 1u);
  EXPECT_THAT(p.warnings[0], testing::HasSubstr("requested on sim:7, which is not among the devices: placed by the strategy instead"));
}

TEST(Requests, that_lead_nowhere_leave_the_cut_of_layers_to_the_rest) {
  const PlacedGraph plan = place(asking("sim:7"), to_strategy(Layers{.devices = sims(2), .threads = 1}), sim_cluster(2), 8, {.soft = true});
  std::set<int> used;
  for (const PlanNode& n : plan.nodes)
    if (n.scope == Scope::tower) used.insert(plan.devices(n).front());
  EXPECT_EQ(used.size(), 2u);
}

/// On GPUs.
KernelChoice all_but_matmul(const KernelQuery& q) {
  const bool lacks = q.device_kind == "gpu" && q.node.op == "matmul";
  return {lacks ? "reference" : "kernel", 0, true, lacks ? "a_kernel: it is too large" : ""};
}

TEST(Requests, that_are_soft_give_way_to_a_kernel_that_lacks) {
  Cluster cluster = sim_cluster(1);
  cluster.devices.push_back({parse_device("gpu:0"), "gpu:0"});
  PlaceOptions options;
  options.kernels = all_but_matmul;
  EXPECT_TRUE(says([&] { placed("gpu:0", false, cluster, options); }, {"'matmul_1' is requested on gpu:0, but GPUs have no kernel for it: a_kernel: it is too large", "request cpu:0", "or nothing: then it runs on the host"}));
  Placed p = placed("gpu:0", true, cluster, options);
  EXPECT_EQ(p.where("matmul_1"), "sim:0");
  EXPECT_EQ(p.where("v"), "gpu:0");  // which needs none
  EXPECT_EQ(p.reason("matmul_1"), "requested on gpu:0, which has no kernel for it; single");
}

TEST(Requests, that_are_soft_give_way_where_no_kernels_are_known) {
  Cluster cluster = sim_cluster(1);
  cluster.devices.push_back({parse_device("gpu:0"), "gpu:0"});
  PlaceOptions options;
  options.kernels = [](const KernelQuery& q) { return q.device_kind == "gpu" ? throw UserError("no kernels") : KernelChoice{"kernel", 0, true}; };
  EXPECT_TRUE(says([&] { placed("gpu:0", false, cluster, options); }, {"no kernels"}));
  EXPECT_EQ(placed("gpu:0", true, cluster, options).reason("matmul_1"), "requested on gpu:0, which has no kernel for it; single");
}

/// Their gradients are not, and follow what the fused node alone is.
TEST(Requests, that_are_soft_give_way_of_nodes_that_are_fused_away) {
  Builder b("fused");
  Value h = b.input("x", f32, {kBatch, 8});
  {
    auto on = b.device("sim:7");
    h = relu(matmul(h, b.variable("w", {8, 4}, {.init = "normal", .init_value = 0.3})) + b.variable("bias", {4}));
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  PlaceOptions options{.groups = all_groups, .soft = true};
  for (const std::vector<PlacementRule>& rules : {std::vector<PlacementRule>{}, {{"matmul*", {cpu(0)}, "by hand"}, {"add*", {cpu(0)}, "by hand"}, {"relu*", {cpu(0)}, "by hand"}}}) {
    options.rules = rules;
    const PlacedGraph plan = place(graph, to_strategy(Single{.device = sims(1)[0], .threads = 1}), sim_cluster(1), 4, options);
    EXPECT_TRUE(std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.op == kFused; }));
    EXPECT_EQ(verify(plan), std::vector<std::string>());
  }
}

/// What is computed from variables alone runs on every device that has them.
std::shared_ptr<const Graph> shared_product() {
  Builder b("shared_product");
  Value product = matmul(b.variable("w", {1, 300}, {.init = "normal", .init_value = 0.3}), b.variable("v", {300, 12}, {.init = "normal", .init_value = 0.3}));
  b.minimize(reduce_mean(square(mul(b.input("x", f32, {kBatch, 12}), product))), Momentum{.learning_rate = 0.1});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

TEST(Kernels, that_gpus_lack_say_why) {
  Cluster cluster = sim_cluster(0);
  cluster.devices.push_back({parse_device("gpu:0"), "gpu:0"});
  PlaceOptions options;
  options.kernels = all_but_matmul;
  const PlacedGraph plan = place(shared_product(), to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), cluster, 8, options);
  const auto moved = std::find_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.name == "matmul"; });
  ASSERT_NE(moved, plan.nodes.end());
  EXPECT_EQ(moved->reason, "GPUs have no kernel for it: a_kernel: it is too large");
}

TEST(Kernels, whose_bits_may_differ_leave_what_all_devices_hold_to_one_of_them) {
  Cluster cluster = sim_cluster(0);
  cluster.devices.insert(cluster.devices.begin(), {parse_device("gpu:0"), "gpu:0"});
  cluster.links = {{parse_devices("gpu:0,cpu:0"), "bus", 1e10, 1e-5}};
  PlaceOptions options;
  options.kernels = [](const KernelQuery& q) { return KernelChoice{q.device_kind + "_" + q.node.op, 0, true}; };
  auto placed_on = [&](const char* devices) { return place(shared_product(), to_strategy(Mirrored{.devices = parse_devices(devices), .threads = 1}), cluster, 8, options); };
  const PlacedGraph plan = placed_on("gpu:0,cpu:0");
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  int products = 0, updates = 0;
  for (const PlanNode& n : plan.nodes) {
    if (n.scope != Scope::shared || (n.op != "matmul" && n.op != "momentum")) continue;
    ++(n.op == "matmul" ? products : updates);
    EXPECT_EQ(n.holders.size(), n.op == "matmul" ? 1u : 2u) << n.name;  // an update is exact
    EXPECT_EQ(n.op == "matmul", n.reason.ends_with("one computes it for all")) << n.reason;
  }
  EXPECT_EQ(products, 3);
  EXPECT_EQ(updates, 2);
  EXPECT_NE(plan.arithmetic_hash, placed_on("cpu:0,gpu:0").arithmetic_hash) << "the product is by another kernel";
}

TEST(Kernels, that_were_edited_to_differ_between_holders_are_refused_and_hashed_apart) {
  const PlacedGraph plan = place(shared_product(), to_strategy(Mirrored{.devices = {sims(1)[0], cpu(0)}, .threads = 1}), sim_cluster(1), 8);
  ASSERT_EQ(verify(plan), std::vector<std::string>());
  std::vector<std::string> hashes;
  for (std::size_t g = 0; g < 2; ++g) {
    ASSERT_EQ(plan.groups.at(g).devices.size(), 1u);
    PlacedGraph other = plan;
    for (PlanNode& n : other.nodes)
      if (n.scope == Scope::shared && n.op == "matmul") n.by_group[g].kernel = "other";
    hashes.push_back(arithmetic_hash(other));
    EXPECT_THAT(verify(other), testing::Contains(testing::HasSubstr("unlike kernels: 'matmul")));
  }
  EXPECT_NE(hashes[0], hashes[1]);
}

TEST(Requests, that_are_soft_give_way_where_memory_does_not_do) {
  Cluster cluster = sim_cluster(2);
  cluster.devices[1].memory = 600;  // v has 512 bytes, and as many of momentum
  EXPECT_FALSE(over_memory(placed("sim:1", false, cluster).plan).empty());
  Placed p = placed("sim:1", true, cluster);
  EXPECT_TRUE(over_memory(p.plan).empty());
  EXPECT_EQ(p.where("v"), "sim:0");
  EXPECT_EQ(p.reason("v"), "requested on sim:1, which has not the memory for it; single");
}

TEST(Requests, rules_for_a_device_that_is_not_there_name_node_and_rule) {
  EXPECT_TRUE(says([] { placed("sim:1", false, sim_cluster(2), {.rules = {{"matmul*", {parse_device("sim:9")}, "moved by hand"}}}); },
                   {"[matmul] 'matmul' goes to sim:9 by the rule \"matmul*\" (moved by hand), which is not among the devices", "--devices", "change the rule"}));
}

/// Of a graph of two layers, by a strategy.
void placed_by(const Strategy& strategy, const Cluster& cluster, std::vector<PlacementRule> rules = {}) {
  const std::size_t must = rules.size();
  Builder b("two");
  Value h = relu(matmul(b.input("x", f32, {kBatch, 8}), b.variable("w", {8, 32}, {.init = "normal", .init_value = 0.3})));
  b.minimize(reduce_mean(square(matmul(h, b.variable("v", {32, 4}, {.init = "normal", .init_value = 0.3})))), Momentum{.learning_rate = 0.1});
  place(std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build())), strategy, cluster, 4, {.rules = std::move(rules), .must_decide = must});
}

TEST(Requests, that_a_strategy_cannot_meet_say_why_and_two_ways_out) {
  const std::vector<DeviceId> three = sims(3), two = sims(2);
  EXPECT_TRUE(says([&] { placed_by(to_strategy(Layers{.devices = three, .towers = 4, .replicas = 2}), sim_cluster(3)); }, {"[hybrid] -O replicas=2: 3 devices cannot be shared by 2 replicas", "--devices", "-O replicas=1"}));
  EXPECT_TRUE(says([&] { placed_by(to_strategy(Layers{.devices = two, .order = PhaseOrder::gpipe, .chunks = 2}), sim_cluster(2)); }, {"2 chunks", "not of gpipe", "-O order=interleaved", "leave chunks out"}));
  for (int chunks : {0, 1'000'000'000}) EXPECT_TRUE(says([&] { placed_by(to_strategy(Layers{.devices = two, .order = PhaseOrder::interleaved, .chunks = chunks}), sim_cluster(2)); }, {std::to_string(chunks), "1 to 1024 chunks"}));
  EXPECT_TRUE(says([&] { to_strategy(ParameterServer{.devices = two, .staleness = 1, .towers = 2'000'000'000}); }, {"2000000000 workers", "1 to 65536"}));
  EXPECT_TRUE(says([&] { to_strategy(ParameterServer{.devices = two, .backup = 2'147'483'646, .towers = 2'147'483'647}); }, {"2147483647 workers"}));
  Cluster apart = sim_cluster(2);
  apart.unlinked = {{"sim:0", "sim:1"}};
  EXPECT_TRUE(says([&] { placed_by(to_strategy(Mirrored{.devices = two}), apart); }, {"' is needed on sim:0 but lies on sim:1, and no link joins the spaces", "--move", "--devices"}));
}

TEST(Clusters, of_a_host_have_cpus_from_0_on) {
  EXPECT_TRUE(says([] { local_cluster({cpu(0), cpu(7)}, 2); }, {"device cpu:7 is not here: 2 cores and 2 CPU devices are named", "from cpu:0 on", "sim:0"}));
  EXPECT_EQ(local_cluster(parse_devices("cpu:0-7"), 2).devices.size(), 8u);
  EXPECT_EQ(local_cluster({cpu(1)}, 2).devices.size(), 1u);
}

TEST(Clusters, have_no_gpu_in_another_device_s_memory) {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  const std::vector<DeviceId> gpus = parse_devices("gpu:0-1");
  const Cluster sound = local_cluster(gpus, 2);
  auto place_on = [&](int device, const std::string& space) {
    Cluster c = sound;
    c.devices[static_cast<std::size_t>(device)].space = space;
    return [=] { place(graph, to_strategy(Mirrored{.devices = gpus}), c, 8); };
  };
  EXPECT_TRUE(says(place_on(1, "gpu:0"), {"gpu:0 and gpu:1 are said to share the memory space 'gpu:0'", "leave its \"space\" out"}));
  EXPECT_TRUE(says(place_on(0, "host"), {"gpu:0 and cpu:0 are said to share the memory space 'host'"}));
  place_on(0, "its own")();
}

TEST(Clusters, made_by_hand_have_no_gpu_beside_its_own_slice) {
  Cluster cluster = sim_cluster(1);
  cluster.devices.push_back({parse_device("gpu:0/1"), "gpu:0/1"});
  EXPECT_NO_THROW(placed_by(to_strategy(Single{.device = sims(1)[0]}), cluster));
  cluster.devices.push_back({parse_device("gpu:0"), "gpu:0"});
  EXPECT_TRUE(says([&] { placed_by(to_strategy(Single{.device = sims(1)[0]}), cluster); }, {"gpu:0 and its slice gpu:0/1 are one GPU", "name its slices alone, or the whole"}));
}

TEST(Requests, of_a_placement_for_another_graph_name_the_rule_and_two_ways_out) {
  EXPECT_TRUE(says([] { placed_by(to_strategy(Single{.device = sims(1)[0]}), sim_cluster(1), {{"conv1/kernel", sims(1), "by hand"}}); },
                   {"the rule \"conv1/kernel\" matches no node", "name one of 'two'", "or take the rule out: it may be of another graph"}));
}

}  // namespace
}  // namespace belfry::test
