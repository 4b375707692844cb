#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <set>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/placer/choose.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

/// GPUs on a switch of their own, with a host behind slower links.
Cluster machine_of(int n, double flops, double link, std::int64_t memory = std::int64_t{1} << 40) {
  Cluster c;
  std::vector<DeviceId> all;
  for (int i = 0; i < n; ++i) {
    ClusterDevice d{{0, "gpu", i, -1}, "gpu:" + std::to_string(i)};
    d.flops = flops, d.bandwidth = flops / 10, d.launch = 5e-6, d.memory = memory;
    c.devices.push_back(d);
    all.push_back(d.id);
  }
  ClusterDevice host{cpu(0), "host"};
  host.flops = host.bandwidth = 1e10;
  c.devices.push_back(host);
  c.links = {{all, "switch", link, 1e-5}, {all, "host", link / 4, 2e-5}};
  return c;
}

/// Some layers of one width: many rows of small layers ask for towers, few rows of large ones for layers on devices.
std::shared_ptr<const Graph> layered(int count, std::int64_t width) {
  Builder b("layered");
  Value h = b.input("x", f32, {kBatch, width});
  for (int k = 0; k < count; ++k) h = relu(matmul(h, b.variable("w" + std::to_string(k), {width, width}, {.init = "normal", .init_value = 0.3})));
  b.minimize(reduce_sum(square(h)), Momentum{.learning_rate = 0.1});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

using Options = std::map<std::string, std::string>;

/// BELFRY_EXHAUSTIVE: every option with every other, and any number of devices; else the telling ones, over all devices, half, a quarter.
bool exhaustive() { return std::getenv("BELFRY_EXHAUSTIVE"); }

/// Every value of an option that is worth a look, over n devices. An option that is not known here fails the test.
std::vector<std::string> values_of(const std::string& option, bool pipelined, int n) {
  auto count = [](int k) { return std::to_string(k); };
  auto any = [](const std::vector<std::string>& values) { return exhaustive() ? values : std::vector<std::string>{""}; };
  if (option == "towers") return pipelined ? std::vector<std::string>{"", count(2 * n), count(4 * n)} : any({"", count(2 * n), count(4 * n)});
  if (option == "variables") return {"cpu:0", "gpu:0", "spread", "chosen"};
  if (option == "reduction") return exhaustive() ? std::vector<std::string>{"", "hierarchical", "reduce-to-one", "ring"} : std::vector<std::string>{"", "reduce-to-one"};
  if (option == "buckets") return {"", "none"};
  if (option == "servers") return {"cpu:0", n > 1 ? "gpu:0-" + count(n - 1) : "gpu:0"};
  if (option == "order") return {"gpipe", "1f1b", "interleaved"};
  if (option == "objective") return any({"max-load", "latency", "variables"});
  if (option == "chunks") return {"", "2"};
  if (option == "replicas") return any({"", "1", "2"});
  // Of the loss, of the host, of a library that no forecast knows, and of loops, which have no step.
  if (option == "collectives" || option == "combine" || option == "threads" || option == "staleness" || option == "backup") return {""};
  ADD_FAILURE() << "the option '" << option << "' is left out";
  return {""};
}

/// All options of a strategy with each other; where not all are wanted, two chunks where phases are interleaved, else one.
std::vector<Options> options_of(const StrategyDef& def, int n) {
  std::vector<Options> out = {{}};
  const bool pipelined = std::any_of(def.fields.begin(), def.fields.end(), [](const StrategyField& f) { return f.name == "order"; });
  for (const StrategyField& f : def.fields) {
    std::vector<Options> more;
    for (const Options& o : out)
      for (const std::string& value : values_of(f.name, pipelined, n)) {
        more.push_back(o);
        if (!value.empty()) more.back()[f.name] = value;
      }
    out = std::move(more);
  }
  if (pipelined && !exhaustive()) std::erase_if(out, [](const Options& o) { return (o.at("order") == "interleaved") != o.contains("chunks"); });
  return out;
}

/// What it begins with, without what is near.
Strategy without_near(Strategy s) {
  s.choice = [all = s.choice](const SecondsOf& seconds) { return Choice{all(seconds).candidates}; };
  return s;
}

Strategy choice_of(std::vector<Strategy> candidates) {
  Strategy out = to_strategy(Auto{.devices = first_gpus(1)});
  out.choice = [all = std::move(candidates)](const SecondsOf&) { return Choice{all}; };
  return out;
}

struct Shortest {
  double seconds = 1e300;
  std::string what;
  int looked_at = 0, refused = 0;
};

/// All strategies with all their options, over all of the devices, half of them, a quarter, …
std::vector<Strategy> all_strategies(int gpus) {
  std::vector<Strategy> out;
  for (const StrategyDef& def : standard_strategies()) {
    if (def.name == "auto") continue;
    for (int n = gpus; n >= 1; n = exhaustive() ? n - 1 : n / 2)
      for (const Options& o : options_of(def, n)) try {
          Strategy& s = out.emplace_back(def.make(first_gpus(n), o));
          s.options = "on " + std::to_string(n);
          for (const auto& [name, value] : o) s.options += " " + name + "=" + value;
        } catch (const UserError&) {  // a way to reduce that it has not, replicas that do not share the devices: no strategy
        }
  }
  return out;
}

/// The shortest step of all; refused are pipelines' stages that the devices do not give. Many are scored as `auto` does it: a score is the
/// finished plan's.
Shortest shortest_step(const std::shared_ptr<const Graph>& graph, const Cluster& cluster, int gpus, std::int64_t batch) {
  Shortest out;
  std::vector<Strategy> all = all_strategies(gpus);
  out.looked_at = static_cast<int>(all.size());
  if (exhaustive()) {
    const std::vector<Candidate> found = choose(graph, choice_of(std::move(all)), cluster, batch);
    out.seconds = forecast(*found.front().plan).seconds;
    out.what = describe(found.front().strategy);
    out.refused = static_cast<int>(std::count_if(found.begin(), found.end(), [](const Candidate& c) { return !c.refused.empty(); }));
    return out;
  }
  for (const Strategy& s : all) {
    try {
      PlacedGraph plan = place(graph, s, cluster, batch);
      if (!over_memory(plan).empty()) continue;
      const double seconds = forecast(plan).seconds;
      if (seconds < out.seconds) out.seconds = seconds, out.what = describe(s);
    } catch (const UserError&) {
      ++out.refused;
    }
  }
  return out;
}

TEST(Choose, takes_the_shortest_step_of_all_strategies) {
  const std::vector<Cluster> clusters = {machine_of(4, 1e13, 1e10), machine_of(4, 1e12, 1e11), machine_of(4, 1e14, 1e8)};
  std::set<std::string> taken;
  const std::vector<std::tuple<int, int, int>> nets = {{4, 64, 4096}, {8, 1024, 64}, {2, 2048, 256}, {6, 256, 16}};
  for (auto [count, width, batch] : nets) {
    auto graph = layered(count, width);
    for (const Cluster& cluster : clusters) {
      std::vector<Candidate> found = choose(graph, to_strategy(Auto{.devices = first_gpus(4)}), cluster, batch);
      EXPECT_TRUE(found.front().refused.empty());
      const Shortest best = shortest_step(graph, cluster, 4, batch);
      std::cout << count << " layers of " << width << ", " << batch << " rows: " << found.front().seconds << " s by " << found.front().strategy.name << " " << found.front().strategy.options << "; of " << best.looked_at << " ("
                << best.refused << " refused) the shortest is " << best.seconds << " by " << best.what << std::endl;
      EXPECT_LE(found.front().seconds, best.seconds * (1 + 1e-12)) << describe(found);
      EXPECT_DOUBLE_EQ(forecast(place(graph, to_strategy(Auto{.devices = first_gpus(4)}), cluster, batch)).seconds, found.front().seconds);
      taken.insert(found.front().strategy.name + " " + found.front().strategy.options);
    }
  }
  EXPECT_GE(taken.size(), 3u) << "the cases are to be unlike each other";
}

TEST(Choose, takes_the_same_in_whatever_order_unlike_devices_are_named) {
  auto graph = layered(2, 2048);
  Cluster cluster = machine_of(4, 1e13, 1e10);
  for (std::size_t slow : {0, 1}) cluster.devices[slow].flops /= 8, cluster.devices[slow].bandwidth /= 8;
  std::vector<Candidate> first;
  for (const char* devices : {"gpu:2,gpu:3,gpu:0,gpu:1", "gpu:0-3", "gpu:0,gpu:2,gpu:1,gpu:3"}) {
    const std::vector<Candidate> found = choose(graph, to_strategy(Auto{.devices = parse_devices(devices)}), cluster, 256);
    if (first.empty()) first = found;
    EXPECT_EQ(found.front().seconds, first.front().seconds) << devices << "\n" << describe(found);
    EXPECT_EQ(to_string(found.front().strategy.given->devices), to_string(first.front().strategy.given->devices)) << devices;
    // A slow one alone, since the fast ones may have less memory; and of pipelines side by side each has one of both.
    EXPECT_THAT(describe(found), testing::HasSubstr("single --devices gpu:0 ")) << devices;
    const auto dealt = [](const Candidate& c) { return c.strategy.name == "hybrid" && to_string(c.strategy.given->devices) == "gpu:2,gpu:0,gpu:3,gpu:1"; };
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), dealt)) << devices << "\n" << describe(found);
  }
  const std::vector<DeviceId> fast = parse_devices("gpu:2-3");
  EXPECT_LE(first.front().seconds, forecast(place(graph, to_strategy(Mirrored{.devices = fast}), cluster, 256)).seconds);
}

TEST(Choose, looks_at_all_homes_of_variables_with_both_ways_to_add) {
  auto graph = layered(4, 256);
  Cluster cluster = machine_of(4, 1e13, 1e10);
  cluster.links = {{parse_devices("gpu:0-1"), "left", 1e10, 1e-5}, {parse_devices("gpu:2-3"), "right", 1e10, 1e-5}, {{cpu(0)}, "left", 1e9, 1e-5}, {{cpu(0)}, "right", 1e9, 1e-5}};
  std::set<std::string> scored;
  for (const Candidate& c : choose(graph, without_near(to_strategy(Auto{.devices = first_gpus(4)})), cluster, 256))
    if (c.refused.empty()) scored.insert(describe(c.strategy));
  for (const char* home : {"", " -O variables=chosen", " -O variables=gpu:0", " -O variables=spread"}) {
    EXPECT_TRUE(scored.contains(std::string("towers") + home)) << home;
    EXPECT_TRUE(scored.contains(std::string("towers -O reduction=hierarchical") + home)) << home;
  }
}

TEST(Choose, of_no_devices_says_what_to_give) {
  EXPECT_THAT(message_of([] { place(layered(1, 4), to_strategy(Auto{}), machine_of(1, 1e12, 1e10), 4); }),
              testing::HasSubstr("strategy auto has nothing to choose from: give it devices"));
}

TEST(Choose, looks_around_what_is_good) {
  auto graph = layered(8, 1024);
  const Cluster cluster = machine_of(4, 1e13, 1e10);
  const Strategy choice = to_strategy(Auto{.devices = first_gpus(4)});
  EXPECT_LT(choose(graph, choice, cluster, 256).front().seconds, 0.99 * choose(graph, without_near(choice), cluster, 256).front().seconds);
}

TEST(Choose, of_many_devices_does_not_go_to_the_end_of_what_takes_too_long) {
  auto graph = layered(1, 64);
  const Cluster cluster = machine_of(64, 1e10, 1e11);
  const std::vector<Candidate> found = choose(graph, to_strategy(Auto{.devices = first_gpus(64)}), cluster, 8192);
  EXPECT_FALSE(found.front().bound);
  int bounds = 0, not_placed = 0;
  for (const Candidate& c : found) {
    if (!c.bound) continue;
    EXPECT_GT(c.seconds, found.front().seconds) << describe(c.strategy);
    if (++bounds % 7 == 0) {
      EXPECT_GE(forecast(place(graph, c.strategy, cluster, 8192)).seconds, c.seconds * (1 - 1e-12)) << describe(c.strategy);
    }
    not_placed += c.peak == 0;
  }
  EXPECT_GT(bounds - not_placed, 3) << describe(found);
  EXPECT_GT(not_placed, 3) << describe(found);
  EXPECT_THAT(describe(found), testing::HasSubstr("ms at least"));
}

TEST(Choose, makes_the_plan_of_a_graph_that_takes_no_memory) {
  Builder b("nothing");
  b.output(b.input("x", f32, {0, 3}));
  auto graph = std::make_shared<const Graph>(std::move(b).build());
  const Candidate found = choose(graph, to_strategy(Auto{.devices = first_gpus(2)}), machine_of(2, 1e12, 1e10), 1).front();
  EXPECT_EQ(found.peak, 0);
  ASSERT_TRUE(found.plan);
}

TEST(Choose, says_why_what_does_not_fit_was_refused_and_computes_again_where_that_helps) {
  auto graph = layered(12, 64);
  const std::int64_t batch = 4096;
  Strategy single = to_strategy(Single{.device = first_gpus(1)[0]});
  const Strategy only = choice_of({single});
  const std::int64_t whole = choose(graph, only, machine_of(1, 1e12, 1e10), batch).front().peak;
  std::vector<Candidate> found = choose(graph, only, machine_of(1, 1e12, 1e10, whole * 7 / 10), batch);
  EXPECT_EQ(found.front().strategy.options, "--recompute 4");
  EXPECT_LT(found.front().peak, whole * 7 / 10);
  EXPECT_THAT(found.back().refused, testing::HasSubstr("gpu:0 needs"));
  EXPECT_THAT(describe(found), testing::AllOf(testing::HasSubstr("--recompute 4"), testing::HasSubstr("refused: gpu:0 needs")));
  EXPECT_THAT(message_of([&] { choose(graph, only, machine_of(1, 1e12, 1e10, whole / 50), batch); }), testing::AllOf(testing::HasSubstr("no strategy can be taken"), testing::HasSubstr("--recompute 16")));
}

TEST(Choose, leaves_what_does_not_fit_where_it_is_far_behind) {
  auto graph = layered(2, 256);
  const std::int64_t batch = 1 << 18;
  Cluster cluster = machine_of(4, 1e12, 1e11);
  const PlacedGraph alone = place(graph, to_strategy(Single{.device = first_gpus(1)[0]}), cluster, batch);
  for (ClusterDevice& d : cluster.devices) d.memory = device_bytes(alone)[0].total() - 1;
  const std::vector<Candidate> found = choose(graph, to_strategy(Auto{.devices = first_gpus(4)}), cluster, batch);
  ASSERT_GT(forecast(alone).seconds, 2 * found.front().seconds);
  const std::string table = describe(found);
  EXPECT_THAT(table, testing::HasSubstr("single --devices gpu:0 "));
  EXPECT_THAT(table, testing::Not(testing::HasSubstr("single --devices gpu:0 --recompute")));
  EXPECT_THAT(table, testing::Not(testing::HasSubstr("single -O towers=2")));
}

TEST(Choose, takes_smaller_towers_that_compute_again_where_neither_alone_fits) {
  auto graph = layered(12, 64);
  const std::int64_t batch = 1 << 18;
  Cluster host = sim_cluster(0);
  auto peak = [&](int towers, int stretches) {
    PlaceOptions options;
    options.recompute.stretches = stretches;
    return device_bytes(place(graph, to_strategy(Single{.towers = towers}), host, batch, options))[0].total();
  };
  std::int64_t alone = std::min({peak(1, 4), peak(1, 16)}), both = alone;
  for (int t = 2; t <= 1024; t *= 2) {
    alone = std::min(alone, peak(t, 0));
    both = std::min({both, peak(t, 4), peak(t, 16)});
  }
  ASSERT_LT(both, alone - 64);
  host.devices[0].memory = both + 64;
  const std::vector<Candidate> found = choose(graph, to_strategy(Auto{.devices = {cpu(0)}}), host, batch);
  EXPECT_THAT(describe(found.front().strategy), testing::AllOf(testing::HasSubstr("towers="), testing::HasSubstr("--recompute ")));
}

TEST(Choose, takes_smaller_towers_where_whole_ones_do_not_fit) {
  auto graph = layered(2, 64);
  const std::int64_t batch = 4096;
  Cluster host = sim_cluster(0);
  auto peak = [&](int towers) { return device_bytes(place(graph, to_strategy(Single{.towers = towers}), host, batch))[0].total(); };
  ASSERT_LT(peak(4), peak(2));
  host.devices[0].memory = (peak(4) + peak(2)) / 2;
  const Strategy all = to_strategy(Auto{.devices = {cpu(0)}});
  const std::vector<Candidate> found = choose(graph, all, host, batch);
  EXPECT_EQ(found.front().refused, "");
  EXPECT_THAT(describe(found), testing::AllOf(testing::HasSubstr("-O towers=2 "), testing::HasSubstr("-O towers=4 ")));
  EXPECT_THAT(message_of([&] { choose(graph, to_strategy(Auto{.devices = {cpu(0)}, .towers = 1}), host, batch); }), testing::HasSubstr("no strategy can be taken")) << "one tower was asked for";
}

}  // namespace
}  // namespace belfry::test
