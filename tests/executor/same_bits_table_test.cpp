// One command: the same towers give the same bits by every synchronous strategy on 1, 2 and 4 devices, as a table with a hash of all variables:
//   executor_slow_test --gtest_filter='*SameBitsTable*'
#include <gtest/gtest.h>

#include <iostream>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/ops/cpu_kernels.h>

#include "all_groups.h"
#include "plans.h"
#include "ran_as_planned.h"

namespace belfry::test {
namespace {

constexpr int kTableSteps = 20;
constexpr std::int64_t kTableRows = 10;  // towers of unlike shares

std::vector<NamedStrategy> table_strategies(const std::vector<DeviceId>& d, int T) {
  std::vector<NamedStrategy> out;
  auto add = [&](const char* name, const auto& s) { out.push_back({name, to_strategy(s)}); };
  add("towers, variables on cpu:0", Towers{.devices = d, .variables = cpu(0), .towers = T, .threads = 1});
  add("towers, variables on the last", Towers{.devices = d, .variables = d.back(), .towers = T, .threads = 1});
  add("towers, variables spread", Towers{.devices = d, .spread = true, .towers = T, .threads = 1});
  add("towers, variables chosen", Towers{.devices = d, .towers = T, .threads = 1, .chosen = true});
  add("mirrored", Mirrored{.devices = d, .towers = T, .threads = 1});
  add("mirrored, reduce-to-one", Mirrored{.devices = d, .towers = T, .threads = 1, .reduction = Reduce::to_one});
  add("sharded", Sharded{.devices = d, .towers = T, .threads = 1});
  if (d.size() > 2 && d[0].kind == "sim") {  // which have links in two groups
    add("towers, hierarchical", Towers{.devices = d, .towers = T, .threads = 1, .reduction = Reduce::hierarchical});
    add("mirrored, hierarchical", Mirrored{.devices = d, .towers = T, .threads = 1, .reduction = Reduce::hierarchical});
    add("sharded, hierarchical", Sharded{.devices = d, .towers = T, .threads = 1, .reduction = Reduce::hierarchical});
  }
  add("parameter_server, synchronous", ParameterServer{.devices = d, .servers = d, .towers = T, .threads = 1});
  add("auto", Auto{.devices = d, .towers = T, .threads = 1});
  add("layers", Layers{.devices = d, .towers = T, .threads = 1});
  add("pipeline gpipe", Layers{.devices = d, .towers = T, .order = PhaseOrder::gpipe, .threads = 1});
  add("pipeline 1f1b", Layers{.devices = d, .towers = T, .order = PhaseOrder::one_f_one_b, .threads = 1});
  add("pipeline interleaved, 2 chunks", Layers{.devices = d, .towers = T, .order = PhaseOrder::interleaved, .chunks = 2, .threads = 1});
  if (d.size() % 2 == 0) add("hybrid, 2 pipelines", Layers{.devices = d, .towers = T, .replicas = 2, .order = PhaseOrder::one_f_one_b, .threads = 1});
  return out;
}

/// The devices, those that the net asks for, and those that the strategy brings.
Cluster table_cluster(const Graph& graph, const std::vector<DeviceId>& given, const Strategy& strategy, bool slow_links) {
  std::vector<DeviceId> all = given;
  auto need = [&](const DeviceId& id) {
    if (!std::count(all.begin(), all.end(), id)) all.push_back(id);
  };
  for (const DeviceId& id : strategy.devices) need(id);
  for (const Node& n : graph.nodes())
    if (n.device) need(*n.device);
  Cluster out = local_cluster(all, 2);
  for (ClusterDevice& d : out.devices) d.flops = 1e9, d.bandwidth = 1e9, d.launch = 1e-7;
  if (std::vector<DeviceId> linked = all; slow_links) {
    if (!std::count(all.begin(), all.end(), cpu(0))) linked.push_back(cpu(0));  // where feeds lie
    const std::size_t groups = given.size() > 2 ? 2 : 1, each = given.size() / groups;
    for (std::size_t g = 0; g < groups; ++g) {  // halves on switches of their own, which all others join
      ClusterLink link{{given.begin() + static_cast<std::ptrdiff_t>(g * each), given.begin() + static_cast<std::ptrdiff_t>((g + 1) * each)}, fmt::format("switch{}", g), 1e5, 1e-4};
      std::copy_if(linked.begin(), linked.end(), std::back_inserter(link.devices), [&](const DeviceId& id) { return !std::count(given.begin(), given.end(), id); });
      out.links.push_back(std::move(link));
    }
  }
  return out;
}

/// All variables after the steps, as one number.
std::string trained_hash(const PlacedGraph& made) {
  auto plan = std::make_shared<const PlacedGraph>(made);
  EXPECT_EQ(verify(*plan), std::vector<std::string>());
  const Graph& graph = *plan->graph;
  Program program(plan, kernels());
  Runner runner(program);
  for (const auto& [name, value] : state_for(graph)) program.set_state(name, value);
  for (int k = 0; k < kTableSteps; ++k) {
    const Tensors feeds = feeds_for(graph, kTableRows, static_cast<std::uint64_t>(k));
    if (Outcome o = runner.run(views(feeds), {.trace = k == kTableSteps - 1}); o.error) std::rethrow_exception(o.error);
  }
  EXPECT_TRUE(ran_as_planned(*plan, program, runner.trace()));
  std::uint64_t hash = 0;
  for (NodeId id : graph.variables()) {
    const std::string& name = graph.node(id).name;
    const HostTensor value = program.state(name);
    EXPECT_TRUE(program.holders_agree(name)) << name;
    hash = XXH3_64bits_withSeed(value.raw(), value.bytes().size(), hash);
  }
  return fmt::format("{:016x}", hash);
}

class SameBitsTable : public testing::TestWithParam<std::pair<const char*, int>> {};  // a net, and how many towers

TEST_P(SameBitsTable, of_strategies_and_devices_has_one_hash_of_the_state) {
  const auto [name, towers] = GetParam();
  const Graph built = training_graph(net(name), f32);
  auto graph = std::make_shared<const Graph>(built);
  Graph without_scopes = built;
  for (NodeId id = 0; id < without_scopes.size(); ++id) without_scopes.edit(id).device.reset();
  const Strategy single = to_strategy(Single{.device = cpu(0), .towers = towers, .threads = 1});
  const PlaceOptions options{.kernels = chooser(kernels()), .groups = all_groups};
  const std::string want = trained_hash(place(std::make_shared<const Graph>(without_scopes), single, local_cluster({cpu(0)}, 2), kTableRows, options));
  std::cout << fmt::format("{:10} {} towers {:9} {:32} {}\n", name, towers, "cpu:0", "single", want);
  for (const char* list : {"cpu:0", "cpu:0-1", "cpu:0-3", "sim:0", "sim:0-1", "sim:0-3"}) {
    const std::vector<DeviceId> devices = parse_devices(list);
    for (const NamedStrategy& s : table_strategies(devices, towers)) {
      // What is known of devices and links decides what `auto` takes.
      const PlacedGraph plan = place(graph, s.strategy, table_cluster(*graph, devices, s.strategy, devices[0].kind == "sim"), kTableRows, options);
      ASSERT_EQ(plan.towers, towers);
      const std::string taken = s.name == "auto" ? "auto takes " + plan.placement.strategy : s.name, hash = trained_hash(plan);
      std::cout << fmt::format("{:10} {} towers {:9} {:32} {}{}\n", name, towers, list, taken, hash, hash == want ? "" : "  OTHER BITS");
      EXPECT_EQ(hash, want) << name << " on " << list << " by " << taken;
    }
  }
}

using NetTowers = std::pair<const char*, int>;
INSTANTIATE_TEST_SUITE_P(Nets, SameBitsTable, testing::Values(NetTowers("conv", 4), NetTowers("two_heads", 4), NetTowers("batch_norm", 4), NetTowers("dropout", 4), NetTowers("embedding", 4), NetTowers("lamb", 4), NetTowers("conv", 1), NetTowers("conv", 6)),
                         [](const auto& info) { return fmt::format("{}_{}_towers", info.param.first, info.param.second); });

}  // namespace
}  // namespace belfry::test
