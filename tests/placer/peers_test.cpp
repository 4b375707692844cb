// GPUs that do not read each other's memory: what one has for another goes through the host, in the plan, the forecast and the verifier's eyes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/scorer.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

using testing::HasSubstr;
using PeerGroups = std::vector<std::vector<DeviceId>>;

PeerGroups each_alone(int n) {
  PeerGroups out;
  for (int i = 0; i < n; ++i) out.push_back({{0, "gpu", i, -1}});
  return out;
}

Cluster gpus_with(int n, PeerGroups peers) {
  Cluster c = local_cluster(parse_devices("gpu:0-" + std::to_string(n - 1)), 2);
  c.peers = std::move(peers);
  return c;
}

/// h = tanh(x w), y = tanh(h v), trained.
std::shared_ptr<const Graph> tanh_layers(std::int64_t width = 8) {
  Builder b("tanh_layers");
  Value h = identity(tanh(matmul(b.input("x", f32, {kBatch, 4}), b.variable("w", {4, width}, {.init = "glorot_uniform"}))), "h");
  b.minimize(mean(square(tanh(matmul(h, b.variable("v", {width, 4}, {.init = "glorot_uniform"}))))), Sgd{.learning_rate = 0.1f});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

PlacedGraph sound_plan(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, const Cluster& cluster, std::vector<PlacementRule> rules = {}, std::int64_t batch = 8) {
  PlacedGraph plan = place(graph, strategy, cluster, batch, {.fetches = fetches_of(*graph), .rules = std::move(rules)});
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  return plan;
}

/// "cpu:0 from gpu:0 of w; …": what copies bring where, tower 1's where they are the towers'.
std::vector<std::string> ways_of_copies(const PlacedGraph& plan, const std::string& of) {
  std::vector<std::string> out;
  const Instances instances(plan);
  for (const PlanNode& n : plan.nodes)
    if (is_op(n, kCopy) && plan.value(copied_by(plan, n)).name == of)
      for (const Move& m : moves_of(instances, n))
        out.push_back(to_string(plan.cluster.devices[static_cast<std::size_t>(m.to)].id) + " from " + to_string(plan.cluster.devices[static_cast<std::size_t>(m.from)].id) + " of " + plan.value(n.inputs[0]).name);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

using PathTexts = std::vector<std::string>;
using PathBytes = std::map<std::pair<std::string, std::string>, std::int64_t>;

PathBytes bytes_of(const PlacedGraph& plan) {
  PathBytes out;
  for (const LinkLoad& l : link_bytes(plan)) out[{l.from, l.to}] = l.bytes;
  return out;
}

TEST(Stage, is_known_of_gpus_that_are_in_groups_and_in_none_together) {
  Cluster c = gpus_with(4, {parse_devices("gpu:0-1"), parse_devices("gpu:1-2")});
  const int host = c.host();
  EXPECT_EQ(c.stage(0, 1), -1);
  EXPECT_EQ(c.stage(1, 2), -1);
  EXPECT_EQ(c.stage(0, 2), host);
  EXPECT_EQ(c.stage(0, 3), -1) << "nothing is known of gpu:3";
  EXPECT_EQ(c.stage(0, host), -1);
  c.peers.push_back({{0, "gpu", 3, -1}});
  EXPECT_EQ(c.stage(3, 0), host);
  c.peers = {};
  EXPECT_EQ(c.stage(0, 2), -1);
  c = local_cluster(parse_devices("gpu:0/0,gpu:0/1,gpu:1/0"), 1);
  c.peers = each_alone(2);
  EXPECT_EQ(c.stage(0, 1), -1) << "of one GPU";
  EXPECT_EQ(c.stage(1, 2), c.host());
  c.devices[2].id.host = 1;
  EXPECT_EQ(c.stage(1, 2), -1) << "of another host";
}

TEST(CopiesByTheHost, of_a_value_are_made_once_whoever_reads_it) {
  auto graph = tanh_layers();
  const Strategy towers = to_strategy(Towers{.devices = parse_devices("gpu:0-2"), .variables = parse_device("gpu:0"), .towers = 3, .threads = 1});
  EXPECT_EQ(ways_of_copies(sound_plan(graph, towers, gpus_with(3, {})), "w"), (PathTexts{"gpu:1 from gpu:0 of w", "gpu:2 from gpu:0 of w"}));
  EXPECT_EQ(ways_of_copies(sound_plan(graph, towers, gpus_with(3, {parse_devices("gpu:0-2")})), "w"), (PathTexts{"gpu:1 from gpu:0 of w", "gpu:2 from gpu:0 of w"}));
  EXPECT_EQ(ways_of_copies(sound_plan(graph, towers, gpus_with(3, each_alone(3))), "w"), (PathTexts{"cpu:0 from gpu:0 of w", "gpu:1 from cpu:0 of w.copy", "gpu:2 from cpu:0 of w.copy"}));
  EXPECT_EQ(ways_of_copies(sound_plan(graph, towers, gpus_with(3, {parse_devices("gpu:0-1"), parse_devices("gpu:2")})), "w"), (PathTexts{"cpu:0 from gpu:0 of w", "gpu:1 from gpu:0 of w", "gpu:2 from cpu:0 of w.copy"}));
  // What reads it on the host has the same copy, and where the host holds it there is none.
  const std::vector<PlacementRule> first = {{"tower_0/**", {cpu(0)}, "the host's"}};
  EXPECT_EQ(ways_of_copies(sound_plan(graph, towers, gpus_with(3, each_alone(3)), first), "w"), (PathTexts{"cpu:0 from gpu:0 of w", "gpu:1 from cpu:0 of w.copy", "gpu:2 from cpu:0 of w.copy"}));
  const PlacedGraph held = sound_plan(graph, towers, gpus_with(3, each_alone(3)), {{"w", parse_devices("gpu:0,cpu:0"), "both"}});
  EXPECT_EQ(ways_of_copies(held, "w"), (PathTexts{"gpu:1 from cpu:0 of w", "gpu:2 from cpu:0 of w"}));
}

TEST(CopiesByTheHost, of_towers_values_are_two_nodes_that_plan_and_forecast_show) {
  auto graph = tanh_layers();
  const std::vector<PlacementRule> rules = {{"matmul_1", parse_devices("gpu:1"), "second"}};
  auto made = [&](PeerGroups peers) { return sound_plan(graph, to_strategy(Layers{.devices = parse_devices("gpu:0-1"), .towers = 2, .order = PhaseOrder::one_f_one_b, .threads = 1, .cut = LayerCut::variables}), gpus_with(2, std::move(peers)), rules); };
  const PlacedGraph direct = made({}), staged = made(each_alone(2));
  const PathTexts ways = ways_of_copies(staged, "h");
  EXPECT_EQ(ways, (PathTexts{"cpu:0 from gpu:0 of h", "gpu:1 from cpu:0 of h.copy"}));
  EXPECT_EQ(ways_of_copies(direct, "h"), PathTexts{"gpu:1 from gpu:0 of h"});
  EXPECT_EQ(staged.arithmetic_hash, direct.arithmetic_hash);
  PathBytes before = bytes_of(direct), after = bytes_of(staged);
  const auto up = std::pair<std::string, std::string>("gpu:0", "host"), down = std::pair<std::string, std::string>("host", "gpu:1"), there = std::pair<std::string, std::string>("gpu:0", "gpu:1");
  EXPECT_GE(before[there], 8 * 8 * 4);
  EXPECT_EQ(after.count(there), 0u);
  EXPECT_EQ(after[up], before[up] + before[there]);
  EXPECT_EQ(after[down], before[down] + before[there]);
  const int host = staged.cluster.host();
  EXPECT_GE(total_bytes(staged)[static_cast<std::size_t>(host)], total_bytes(direct)[static_cast<std::size_t>(host)] + 4 * 8 * 4) << "a tower's h lies in the host's arena";
  EXPECT_THAT(describe(staged), testing::AllOf(HasSubstr("h.copy"), HasSubstr("by way of the host")));
  // The file says all of it.
  EXPECT_EQ(write_plan(read_plan(write_plan(staged), "plan.json", graph->shared_ops())), write_plan(staged));
  EXPECT_EQ(write_plan(place(graph, placement_of(staged), staged.cluster, {.fetches = fetches_of(*graph)})), write_plan(staged));
}

TEST(CopiesByTheHost, take_their_time_on_both_links) {
  auto graph = tanh_layers();
  auto seconds = [&](PeerGroups peers) {
    Cluster c = gpus_with(2, std::move(peers));
    for (ClusterDevice& d : c.devices) d.flops = d.bandwidth = 1e12;
    c.links = {{parse_devices("gpu:0-1"), "host", 1e4, 0}};
    const PlacedGraph plan = place(graph, to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), c, 8, {.rules = {{"tanh_1", parse_devices("gpu:1"), "there"}}});
    const Forecast f = forecast(plan);
    PathBytes carried;
    for (const LinkForecast& l : f.links) carried[{l.from, l.to}] = static_cast<std::int64_t>(l.bytes);
    EXPECT_TRUE(c.peers.empty() || carried == bytes_of(plan));
    EXPECT_EQ(Scorer(graph, c)(plan.placement).step_seconds, f.seconds);
    return std::pair(f.seconds, carried);
  };
  // 8 rows of 4 go there and back: at once over two links, or over one after the other.
  const auto direct = seconds({}), staged = seconds(each_alone(2));
  EXPECT_NEAR(staged.first - direct.first, 2 * 8 * 4 * 4 / 1e4, 1e-6);
  EXPECT_EQ(staged.second, direct.second);
}

TEST(SumsByTheHost, are_added_there_once_and_have_the_same_bits_by_name) {
  auto graph = tanh_layers();
  for (int T : {2, 4}) {
    const Strategy mirrored = to_strategy(Mirrored{.devices = parse_devices("gpu:0-1"), .towers = T, .threads = 1, .bucket = 0});
    const PlacedGraph direct = sound_plan(graph, mirrored, gpus_with(2, {})), staged = sound_plan(graph, mirrored, gpus_with(2, each_alone(2)));
    EXPECT_EQ(staged.arithmetic_hash, direct.arithmetic_hash);
    int sums = 0;
    for (const PlanNode& n : staged.nodes) {
      if (!is_op(n, kAggregate) || !adds_parts(n)) continue;
      const PlanNode& host = staged.maker(n.inputs[0]);
      if (n.holders.size() < 2) continue;
      ++sums;
      EXPECT_EQ(host.name, n.name + ".host");
      EXPECT_EQ(host.holders, DeviceList{staged.cluster.host()});
    }
    EXPECT_GE(sums, 2);
    for (const auto& [way, bytes] : bytes_of(staged)) EXPECT_TRUE(way.first == "host" || way.second == "host") << way.first << " to " << way.second;
  }
}

TEST(SumsByTheHost, are_there_for_groups_gathers_and_ranges_too) {
  auto graph = tanh_layers(256);
  const auto four = parse_devices("gpu:0-3");
  const PeerGroups pairs = {parse_devices("gpu:0-1"), parse_devices("gpu:2-3")};
  int sums = 0, gathers = 0, stores = 0, others = 0;
  for (const PeerGroups& peers : {each_alone(4), pairs})
    for (int T : {4, 8})
      for (const Strategy& s : {to_strategy(Mirrored{.devices = four, .towers = T, .threads = 1, .reduction = Reduce::hierarchical, .bucket = 200}), to_strategy(Sharded{.devices = four, .towers = T, .threads = 1}),
                                to_strategy(Sharded{.devices = four, .towers = T, .threads = 1, .reduction = Reduce::hierarchical}), to_strategy(Towers{.devices = four, .spread = true, .towers = T, .threads = 1})}) {
        Cluster unsaid = gpus_with(4, {});
        unsaid.links = {{parse_devices("gpu:0-1"), "left", 1e10, 0}, {parse_devices("gpu:2-3"), "right", 1e10, 0}, {four, "host", 1e9, 0}};
        Cluster said = unsaid;
        said.peers = peers;
        const PlacedGraph direct = sound_plan(graph, s, unsaid), staged = sound_plan(graph, s, said);
        EXPECT_EQ(staged.arithmetic_hash, direct.arithmetic_hash) << s.name;
        for (const LinkLoad& l : link_bytes(staged)) {
          if (l.from == "host" || l.to == "host") continue;
          EXPECT_EQ(staged.cluster.stage(staged.cluster.at(parse_device(l.from)), staged.cluster.at(parse_device(l.to))), -1) << l.from << " to " << l.to;
        }
        for (const PlanNode& n : staged.nodes) {
          // Peers add their group's parts before the host adds those of groups; what has no peers leaves all to the host.
          const bool sum = n.sum == SumWay::groups && n.holders.size() == 4;
          sums += sum;
          EXPECT_TRUE(!sum || staged.maker(n.inputs[0]).name == n.name + ".host") << n.name;
          EXPECT_TRUE(!sum || peers != pairs || staged.maker(staged.maker(n.inputs[0]).inputs[0]).name == n.name + ".group") << n.name;
          // A variable that all have takes what the host has gathered of its ranges.
          const bool gather = is_op(n, kAllGather);
          ++(gather && n.donates.empty() ? gathers : gather ? stores : others);
          EXPECT_TRUE(!gather || (n.holders == DeviceList{staged.cluster.host()}) == n.donates.empty()) << n.name;
        }
        EXPECT_EQ(write_plan(place(graph, placement_of(staged), said, {.fetches = fetches_of(*graph)})), write_plan(staged)) << s.name;
      }
  EXPECT_GT(sums, 0);
  EXPECT_GT(gathers, 0);
  EXPECT_GT(stores, 0);
  EXPECT_GT(others, 0);
}

/// Rows that towers have on both GPUs are gathered for what one of them computes of all, and that is split again.
TEST(JoinsByTheHost, and_splits_read_what_the_host_has) {
  Builder b("whole");
  Value t = tanh(b.input("x", f32, {kBatch, 4}));
  b.metric("out", mean(square(cumsum(t, {.axis = 0}))));
  const auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  const Strategy towers = to_strategy(Towers{.devices = parse_devices("gpu:0-1"), .variables = cpu(0), .towers = 2, .threads = 1});
  const std::vector<PlacementRule> rules = {{"cumsum", parse_devices("gpu:0"), "one"}, {"*.gather", parse_devices("gpu:0"), "one"}};
  const PlacedGraph direct = sound_plan(graph, towers, gpus_with(2, {}), rules), staged = sound_plan(graph, towers, gpus_with(2, each_alone(2)), rules);
  EXPECT_EQ(staged.arithmetic_hash, direct.arithmetic_hash);
  auto gathered_and_split = [](const PlacedGraph& plan) {
    PathTexts out;
    for (const PlanNode& n : plan.nodes) {
      if (is_op(n, kAggregate) && !adds_parts(n)) out.push_back(n.name + " on " + to_string(plan.cluster.ids(n.holders)));
      if (is_op(n, kSplit)) out.push_back("split of " + plan.value(n.inputs[0]).name);
    }
    return out;
  };
  EXPECT_EQ(gathered_and_split(direct), (PathTexts{"split of x", "tanh.gather on gpu:0", "split of cumsum"}));
  EXPECT_EQ(gathered_and_split(staged), (PathTexts{"split of x", "tanh.gather on cpu:0", "split of cumsum.copy"}));
  PathBytes carried = bytes_of(staged);
  EXPECT_EQ(carried.count({"gpu:0", "gpu:1"}) + carried.count({"gpu:1", "gpu:0"}), 0u);
  EXPECT_EQ(write_plan(place(graph, placement_of(staged), staged.cluster, {.fetches = fetches_of(*graph)})), write_plan(staged));
}

/// Each host does for its own GPUs; what goes from host to host is not its.
TEST(SumsByTheHost, and_copies_are_each_hosts_own) {
  auto graph = tanh_layers(256);
  Cluster unsaid;
  unsaid.cores = 2;
  std::vector<DeviceId> all;
  for (int host : {0, 1})
    for (const DeviceId& id : {DeviceId{host, "gpu", 0, -1}, DeviceId{host, "gpu", 1, -1}, DeviceId{host, "cpu", 0, -1}}) {
      unsaid.devices.push_back({id, to_string(id)});
      if (id.kind == "gpu") all.push_back(id);
    }
  Cluster said = unsaid;
  for (const DeviceId& id : all) said.peers.push_back({id});
  const DeviceList cpus = {2, 5};
  for (const Strategy& s : {to_strategy(Mirrored{.devices = all, .towers = 4, .threads = 1}), to_strategy(Sharded{.devices = all, .towers = 4, .threads = 1}),
                            to_strategy(Towers{.devices = all, .variables = all[0], .towers = 4, .threads = 1}), to_strategy(Layers{.devices = all, .towers = 4, .order = PhaseOrder::gpipe, .threads = 1, .cut = LayerCut::variables})}) {
    const PlacedGraph direct = sound_plan(graph, s, unsaid), staged = sound_plan(graph, s, said);
    EXPECT_EQ(staged.arithmetic_hash, direct.arithmetic_hash) << s.name;
    for (const PlanNode& n : staged.nodes)
      EXPECT_TRUE(!n.name.ends_with(".host") || n.holders == cpus) << s.name << ": " << n.name << " on " << to_string(staged.cluster.ids(n.holders));
    const Instances instances(staged);
    for (const PlanNode& n : staged.nodes)
      for (const Move& m : moves_of(instances, n)) {
        const DeviceId &from = said.devices[static_cast<std::size_t>(m.from)].id, &to = said.devices[static_cast<std::size_t>(m.to)].id;
        EXPECT_EQ(said.stage(m.from, m.to), -1) << s.name << ": " << n.name;
        EXPECT_TRUE(!is_op(n, kCopy) || n.inputs[0] == copied_by(staged, n) || from.host == to.host) << s.name << ": " << n.name << " goes on from another host";
      }
  }
}

TEST(SumsByTheHost, of_a_ring_are_refused) {
  auto graph = tanh_layers(256);
  const Strategy ring = to_strategy(Mirrored{.devices = parse_devices("gpu:0-3"), .towers = 4, .threads = 1, .reduction = Reduce::ring, .bucket = 0});
  sound_plan(graph, ring, gpus_with(4, {}));
  EXPECT_TRUE(says([&] { place(graph, ring, gpus_with(4, each_alone(4)), 8); }, {"added round a ring of gpu:0-3", "do not read each other's memory", "-O reduction=tree"}));
}

TEST(Verifier, refuses_what_reads_a_gpu_that_cannot_be_read) {
  auto graph = tanh_layers();
  PlacedGraph copied = sound_plan(graph, to_strategy(Towers{.devices = parse_devices("gpu:0-1"), .variables = parse_device("gpu:0"), .towers = 2, .threads = 1}), gpus_with(2, {}));
  PlacedGraph summed = sound_plan(graph, to_strategy(Mirrored{.devices = parse_devices("gpu:0-1"), .towers = 2, .threads = 1}), gpus_with(2, {}));
  for (PlacedGraph* plan : {&copied, &summed}) {
    plan->cluster.peers = {{{0, "gpu", 0, -1}}};
    EXPECT_EQ(verify(*plan), PathTexts()) << "nothing is known of gpu:1";
    plan->cluster.peers = each_alone(2);
    const PathTexts found = verify(*plan);
    ASSERT_FALSE(found.empty());
    EXPECT_THAT(found[0], testing::AllOf(testing::StartsWith("no peers: '"), HasSubstr("do not read each other's memory"), HasSubstr("derive the plan anew")));
    EXPECT_EQ(verify(place(graph, placement_of(*plan), plan->cluster, {.fetches = fetches_of(*graph)})), PathTexts());
  }
}

}  // namespace
}  // namespace belfry::test
