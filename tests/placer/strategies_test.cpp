#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include <belfry/graph/structural.h>
#include <belfry/placer/expand.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

/// Three variables of unlike size with momentum, and a norm over all gradients.
std::shared_ptr<const Graph> three_layers() {
  Builder b("three_layers");
  Value h = b.input("x", f32, {kBatch, 8});
  const std::int64_t widths[] = {8, 64, 32, 4};
  for (std::size_t k = 0; k < 3; ++k) h = tanh(matmul(h, b.variable("w" + std::to_string(k), {widths[k], widths[k + 1]}, {.init = "normal", .init_value = 0.3})));
  b.minimize(mean(square(h)), Momentum{.learning_rate = 0.1});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

TEST(Strategies, towers_spread_variables_by_bytes_with_all_that_belongs_to_them) {
  auto graph = three_layers();
  auto plan = std::make_shared<const PlacedGraph>(place(graph, to_strategy(Towers{.devices = sims(2), .spread = true, .threads = 1}), sim_cluster(2), 6, {}));
  EXPECT_EQ(verify(*plan), std::vector<std::string>());
  std::map<std::string, std::string> where;
  for (const PlanNode& n : plan->nodes)
    if (n.scope == Scope::state) where[n.name] = to_string(plan->cluster.devices[static_cast<std::size_t>(n.holders.front())].id);
  // w1 is the largest; w0 and w2 together are smaller.
  EXPECT_EQ(where["w1"], "sim:0");
  EXPECT_EQ(where["w0"], "sim:1");
  EXPECT_EQ(where["w2"], "sim:1");
  for (const PlanNode& n : plan->nodes)
    for (auto [u, variable] : n.donates) EXPECT_EQ(n.holders, plan->maker(variable).holders) << n.name;
  // Nothing of an update crosses: gradients are joined where their variable is.
  for (const PlanNode& n : plan->nodes) {
    if (n.op == kAggregate) {
      EXPECT_EQ(n.holders.size(), 1u) << n.name;
    } else if (n.op == kCopy) {
      EXPECT_EQ(plan->maker(n.inputs[0]).scope, Scope::state) << n.name << " moves what no tower reads";
    }
  }
}

TEST(Strategies, towers_give_the_same_bits_wherever_their_variables_are) {
  for (const char* name : {"decay", "batch_norm", "tied"}) {
    Graph plain = training_graph(net(name), f32);
    auto graph = std::make_shared<const Graph>(plain);
    auto trained = [&](const auto& t) {
      auto plan = std::make_shared<const PlacedGraph>(place(graph, to_strategy(t), sim_cluster(3), 7, {.fetches = fetches_of(*graph)}));
      EXPECT_EQ(verify(*plan), std::vector<std::string>());
      Program program(plan, reference_kernels());
      Runner runner(program);
      for (const auto& [variable, value] : state_for(*graph)) program.set_state(variable, value);
      Tensors feeds = feeds_for(*graph, 7);
      for (int k = 0; k < 3; ++k)
        if (Outcome o = runner.run(views(feeds)); o.error) std::rethrow_exception(o.error);
      Tensors out;
      for (NodeId id : graph->variables()) out.emplace(graph->node(id).name, program.state(graph->node(id).name));
      return out;
    };
    Tensors want = trained(Towers{.devices = sims(3), .towers = 3, .threads = 1}), got = trained(Towers{.devices = sims(3), .spread = true, .towers = 3, .threads = 1});
    Tensors cut = trained(Layers{.devices = sims(3), .towers = 3, .order = PhaseOrder::one_f_one_b, .threads = 1});
    for (const auto& [variable, value] : want) {
      EXPECT_TRUE(got.at(variable) == value) << name << ": " << variable;
      EXPECT_TRUE(cut.at(variable) == value) << name << ", cut by cost: " << variable;
    }
  }
}

// ---------------------------------------------------------------- by name, with -O

struct WrongOption {
  const char *strategy, *option, *value;
  std::vector<std::string> words = {};
};

void make_named(const std::string& name, const std::map<std::string, std::string>& options, int devices = 2) {
  for (const StrategyDef& d : standard_strategies())
    if (d.name == name) return static_cast<void>(d.make(sims(devices), options));
  FAIL() << "there is no " << name;
}

TEST(StrategyOptions, that_are_wrong_name_the_strategy_the_value_what_it_takes_and_a_way_out) {
  const std::vector<WrongOption> wrong = {
      {"towers", "towers", "0", {"1 to 65536", "leave the option out"}},
      {"towers", "towers", "3000000000", {"1 to 65536"}},
      {"single", "towers", "-1", {"1 to 65536", "out for 1"}},
      {"auto", "towers", "two", {"1 to 65536"}},
      {"mirrored", "towers", "2x", {"1 to 65536"}},
      {"sharded", "towers", " 2", {"1 to 65536"}},
      {"layers", "towers", "", {"1 to 65536", "out for 1"}},
      {"pipeline", "towers", "65537", {"1 to 65536", "out for 2"}},
      {"towers", "threads", "0", {"1 to 4096"}},
      {"hybrid", "threads", "4097", {"1 to 4096"}},
      {"towers", "variables", "spraed", {"spread or chosen", "did you mean spread?"}},
      {"towers", "variables", "cpu:x", {"'cpu:x' is no device", "write cpu:0"}},
      {"towers", "reduction", "ring", {"tree, hierarchical; leave it out for tree"}},
      {"mirrored", "reduction", "tre", {"tree, hierarchical, reduce-to-one, ring", "did you mean tree?"}},
      {"sharded", "reduction", "reduce-to-one", {"tree, hierarchical, ring"}},
      {"mirrored", "buckets", "0", {"bytes from 1", "auto or none"}},
      {"mirrored", "buckets", "4k", {"bytes from 1", "auto or none"}},
      {"mirrored", "buckets", "9223372036854775808", {"to 9223372036854775807"}},
      {"mirrored", "collectives", "nccl", {"tree, fastest"}},
      {"single", "combine", "mean", {"global_mean, tower_mean, tower_sum"}},
      {"parameter_server", "staleness", "-1", {"0 to 2147483647"}},
      {"parameter_server", "staleness", "", {"0 to 2147483647"}},
      {"parameter_server", "backup", "x", {"0 to 65535", "out for 0"}},
      {"parameter_server", "backup", "2", {"2 of 2 workers", "give -O backup=1 or less"}},
      {"parameter_server", "servers", "x", {"'x' is no device"}},
      {"layers", "objective", "speed", {"max-load, latency, variables"}},
      {"pipeline", "order", "2f1b", {"1f1b, gpipe, interleaved, by_tower", "did you mean 1f1b?"}},
      {"pipeline", "chunks", "0", {"1 to 1024", "out for 1"}},
      {"hybrid", "chunks", "1025", {"1 to 1024"}},
      {"pipeline", "chunks", "2", {"-O order=interleaved"}},
      {"hybrid", "replicas", "0", {"1 to 65536", "out for 2"}},
      {"hybrid", "replicas", "3", {"2 devices cannot be shared by 3 replicas", "--devices", "-O replicas=1"}},
      {"towers", "varables", "cpu:0", {"has no option 'varables'; it has variables, towers, combine, threads, reduction; did you mean variables?"}},
      {"pipeline", "schedule", "x", {"has no option 'schedule'; it has towers, replicas, order, chunks"}},
  };
  for (WrongOption w : wrong) {
    w.words.push_back(std::string("[") + w.strategy + "] -O " + w.option + "=" + w.value + ": ");
    EXPECT_TRUE(says([&] { make_named(w.strategy, {{w.option, w.value}}); }, w.words)) << w.strategy << " " << w.option << "=" << w.value;
  }
  EXPECT_TRUE(says([] { make_named("hybrid", {}, 3); }, {"[hybrid] 3 devices cannot be shared by 2 replicas; "}));  // which nobody asked for
  EXPECT_TRUE(says([] { make_named("mirrored", {{"collectives", "fastest"}, {"reduction", "ring"}}); }, {"[mirrored] -O collectives=fastest: ", "leave -O reduction out"}));
  EXPECT_TRUE(says([] { make_named("parameter_server", {{"staleness", "1"}, {"backup", "1"}}); }, {"[parameter_server] -O staleness=1 -O backup=1: ", "one of the two"}));
}

/// The lists that help and completion show.
TEST(StrategyOptions, take_the_values_that_their_fields_list) {
  std::set<std::string> listed;
  for (const StrategyDef& def : standard_strategies())
    for (const StrategyField& f : def.fields) {
      if (f.values.empty()) continue;
      listed.insert(f.name);
      for (const std::string& value : f.values) EXPECT_NO_THROW(make_named(def.name, {{f.name, value}})) << def.name << " " << f.name << "=" << value;
      EXPECT_TRUE(says([&] { make_named(def.name, {{f.name, "none of these"}}); }, {fmt::format("it is one of {}; leave it out for {}", fmt::join(f.values, ", "), f.values.front())}));
    }
  EXPECT_EQ(listed, (std::set<std::string>{"collectives", "combine", "objective", "order", "reduction"}));
}

TEST(StrategyOptions, may_be_the_ends_of_their_ranges) {
  for (const char* towers : {"1", "65536"}) EXPECT_NO_THROW(make_named("towers", {{"towers", towers}, {"threads", "4096"}}));
  for (const char* chunks : {"1", "1024"}) EXPECT_NO_THROW(make_named("pipeline", {{"order", "interleaved"}, {"chunks", chunks}, {"replicas", "1"}}));
  EXPECT_NO_THROW(make_named("mirrored", {{"buckets", "1"}, {"collectives", "fastest"}}));
  for (const char* staleness : {"0", "2147483647"}) EXPECT_NO_THROW(make_named("parameter_server", {{"staleness", staleness}}));
}

TEST(Strategies, over_no_devices_say_so) {
  auto graph = three_layers();
  for (const Strategy& s : {to_strategy(Layers{}), to_strategy(Layers{.devices = {}, .towers = 2, .replicas = 2}), to_strategy(Mirrored{.devices = {}, .towers = 2, .reduction = Reduce::to_one}), to_strategy(Towers{.devices = {}, .towers = 2})})
    EXPECT_TRUE(says([&] { (void)place(graph, s, sim_cluster(2), 6, {}); }, {"no device"})) << s.name;
}

TEST(Batches, that_are_too_large_say_how_many_rows_there_can_be) {
  auto graph = three_layers();  // 64 floats a row are the most: 2^44 bytes are 2^36 rows
  auto placed = [&](std::int64_t batch) { return expand(graph, {.towers = 1, .batch = batch}).batch; };
  EXPECT_TRUE(says([&] { placed(1'000'000'000'000); }, {"with a batch of 1000000000000", "take a smaller batch", "1 to 68719476736 rows"}));
  EXPECT_TRUE(says([&] { placed(68719476737); }, {"1 to 68719476736 rows"}));
  EXPECT_EQ(placed(68719476736), 68719476736);
}

}  // namespace
}  // namespace belfry::test
