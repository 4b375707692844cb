#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/cost_file.h>
#include <belfry/frontends/json/forecast_file.h>
#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/calibration.h>
#include <belfry/frontends/session/trace.h>
#include <belfry/graph/plan/links.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

Session session_of(const Strategy& s, SessionOptions options = {}) {
  options.library = standard_library();
  return Session(net_named("mlp").build(options.library->ops), s, options);
}

TEST(CostFile, reads_back_what_it_wrote_and_refuses_what_makes_no_sense) {
  CostTable table{"here", 1e-7, 2e-6, 9e-6, 3e-5, 1e10, {{"a {x 1} f32(1*n) threads 1", {{4, 1e-3, {10, 20}}, {8, 2e-3, {20, 40}}}}, {"b", {{0, 1e-9, {}}}}}, {}};
  const std::string text = write_costs(table);
  EXPECT_EQ(read_costs(text, "t.json"), table);
  auto of = [&](const std::string& from, const std::string& to) {
    std::string broken = text;
    broken.replace(broken.find(from), from.size(), to);
    return message_of([&] { read_costs(broken, "t.json"); });
  };
  EXPECT_THAT(of("\"dispatch\"", "\"despatch\""), testing::HasSubstr("dispatch"));
  EXPECT_THAT(of("[8, ", "[4, "), testing::HasSubstr("/kernels/0/measured/1: its rows are not more than those before it"));
  EXPECT_THAT(of("[4, 0.001,", "[4, -0.001,"), testing::HasSubstr("is -0.001; it must be a number from 0"));
  EXPECT_THAT(of("\"key\": \"b\"", "\"key\": \"a {x 1} f32(1*n) threads 1\""), testing::HasSubstr("stands there twice"));
}

TEST(ClusterFile, has_what_forecasts_need_and_old_files_stay_as_they_are) {
  Cluster c = local_cluster({cpu(0), cpu(1)}, 2);
  EXPECT_EQ(write_cluster(c).find("flops"), std::string::npos);
  EXPECT_EQ(write_cluster(c).find("links"), std::string::npos);
  c.devices[1].flops = 1e12, c.devices[1].bandwidth = 2.5e11, c.devices[1].launch = 1e-6, c.devices[1].efficiency = 0.5, c.devices[1].overlap = 0.25, c.devices[1].flops_tf32 = 3e12, c.devices[1].flops_half = 4e12;
  c.links = {{{cpu(0), cpu(1)}, "switch", 1e9, 0}, {{cpu(0), cpu(1)}, "/host:*/bus", 2e9, 1e-6}};
  EXPECT_EQ(read_cluster(write_cluster(c), "c.json"), c);
  Cluster hosts = read_cluster(R"({"belfry": 1, "devices": [{"devices": "gpu:0-1", "hosts": 3}, {"devices": "cpu:0"}]})", "c.json");
  EXPECT_EQ(hosts.devices.size(), 7u);
  EXPECT_EQ(to_string(hosts.devices[5].id), "/host:2/gpu:1");
  auto of = [](const std::string& text) { return message_of([&] { read_cluster(text, "c.json"); }); };
  EXPECT_THAT(of(R"({"belfry": 1, "devices": [{"devices": "cpu:0", "efficiency": 1.5}]})"), testing::HasSubstr("/devices/0/efficiency"));
  EXPECT_THAT(of(R"({"belfry": 1, "devices": [{"devices": "cpu:0", "flops": -1}]})"), testing::HasSubstr("/devices/0/flops"));
  EXPECT_THAT(of(R"({"belfry": 1, "devices": [{"devices": "cpu:0", "flops_half": 0.5}]})"), testing::HasSubstr("/devices/0/flops_half: is no rate"));
  EXPECT_THAT(of(R"({"belfry": 1, "links": [{"devices": "gpu:0", "to": "x", "bandwidth": 1e9}], "devices": [{"devices": "cpu:0"}]})"), testing::HasSubstr("gpu:0 is not among the devices"));
  EXPECT_THAT(of(R"({"belfry": 1, "links": [{"devices": "cpu:0", "to": "x", "bandwidth": 0}], "devices": [{"devices": "cpu:0"}]})"), testing::HasSubstr("/links/0/bandwidth"));
  EXPECT_THAT(of(R"({"belfry": 1, "devices": [{"devices": "/host:1/cpu:0", "hosts": 2}]})"), testing::HasSubstr("names a host beside \"hosts\""));
}

TEST(ClusterFile, has_no_link_from_a_device_to_itself_and_no_switch_of_one_device) {
  auto of = [](const std::string& links) {
    return message_of([&] { read_cluster(R"({"belfry": 1, "devices": [{"devices": "gpu:0-1", "hosts": 2}, {"devices": "cpu:0"}], "links": [)" + links + "]}", "c.json"); });
  };
  const std::string good = R"({"devices": "gpu:0-1", "hosts": 2, "to": "/host:*/bus", "bandwidth": 1e9}, {"devices": "cpu:0", "to": "bus", "bandwidth": 1e9}, )";
  EXPECT_EQ(of(good + R"({"devices": "gpu:0", "to": "gpu:1", "bandwidth": 1e9}, {"devices": "/host:1/gpu:0", "to": "/host:0/cpu:0", "bandwidth": 1e9})"), "(no error)");
  EXPECT_THAT(of(good + R"({"devices": "gpu:0", "to": "gpu:0", "bandwidth": 1e9})"), testing::HasSubstr("/links/2: is a link from gpu:0 to itself"));
  for (const char* to : {"gpu:7", "gpu:0-1"}) EXPECT_THAT(of(good + fmt::format(R"({{"devices": "cpu:0", "to": "{}", "bandwidth": 1e9}})", to)), testing::HasSubstr(fmt::format("'{}' is no one device of this cluster", to)));
  EXPECT_THAT(of(good + R"({"devices": "gpu:1", "to": "cpu0", "bandwidth": 1e9})"), testing::HasSubstr("/links/2: 'cpu0' joins gpu:1 alone: a switch joins several; a device is written cpu:0"));
  EXPECT_EQ(of(good + R"({"devices": "gpu:0", "hosts": 1, "to": "net", "bandwidth": 1e9})"), "(no error)") << "a machine of hosts may have one";
}

TEST(ClusterFile, a_link_to_a_device_leads_to_its_memory_space) {
  for (const char* to : {"cpu:0", "/host:0/cpu:1", "host"}) {
    const Cluster c = read_cluster(fmt::format(R"({{"belfry": 1, "devices": [{{"devices": "cpu:0-1", "space": "host"}}, {{"devices": "sim:0-1"}}], "links": [{{"devices": "sim:0-1", "to": "{}", "bandwidth": 1e9}}]}})", to), "c.json");
    EXPECT_EQ(c.links.at(0).to, "host");
    EXPECT_TRUE(Links(c).leads(c.at({0, "sim", 0, -1}), c.host())) << to;
  }
}

TEST(ClusterFile, those_that_come_with_belfry_forecast_a_net_on_the_devices_of_two_hosts) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(BELFRY_SOURCE) / "clusters")) {
    ++files;
    SessionOptions options{.cluster = read_cluster(read_file(entry.path()), entry.path()), .forecast = true};
    std::vector<DeviceId> gpus;
    for (const ClusterDevice& d : options.cluster->devices)
      if ((d.id.kind == "gpu" || entry.path().stem() == "laptop8") && d.id.host < 2) gpus.push_back(d.id);
    const auto n = static_cast<std::int64_t>(gpus.size());
    Session session = session_of(to_strategy(Mirrored{.devices = gpus}), options);
    const PlacedGraph& plan = session.plan(64 * n);
    const Forecast f = forecast(plan);
    EXPECT_GT(f.seconds, 0) << entry.path();
    EXPECT_EQ(f.by_source[static_cast<std::size_t>(CostSource::guessed)], 0) << entry.path() << " leaves a device's figures open";
    EXPECT_TRUE(says([&] { session.prepare({64 * n}); }, {"for forecasts alone"})) << entry.path();
  }
  EXPECT_EQ(files, 8);
}

/// Sizes that one rule for the last sum's end passed over cost 1 to 6 % of a step.
TEST(ClusterFile, has_buckets_of_the_size_with_the_shortest_step) {
  for (auto [net, cluster, batch, bytes] : {std::tuple("alexnet", "k80x4.json", 128, 25'000'000), {"alexnet", "k80x8.json", 256, 120'000'000}, {"mobilenet_v2", "p100x8.json", 256, 1'000'000}}) {
    SessionOptions options{.library = standard_library(), .cluster = read_cluster(read_file(std::filesystem::path(BELFRY_SOURCE) / "clusters" / cluster), cluster), .forecast = true};
    std::vector<DeviceId> gpus;
    for (const ClusterDevice& d : options.cluster->devices)
      if (d.id.kind == "gpu") gpus.push_back(d.id);
    auto seconds = [&, net = net, batch = batch](std::optional<std::int64_t> bucket) { return forecast(Session(net_named(net).build(options.library->ops), to_strategy(Mirrored{.devices = gpus, .bucket = bucket}), options).plan(batch)).seconds; };
    const double chosen = seconds({});
    EXPECT_LE(chosen, seconds(bytes) * (1 + 1e-9)) << net << " on " << cluster;
    EXPECT_LE(chosen, seconds(0) * (1 + 1e-9)) << net << " on " << cluster;
  }
}

/// A product of 2 · 512³ operations, where only operations take time, forecast in each precision.
TEST(ClusterFile, has_rates_of_their_own_for_products_in_tf32_and_of_halves) {
  SessionOptions options{.library = standard_library(), .cluster = local_cluster(parse_devices("gpu:0"), 1), .forecast = true};
  for (ClusterDevice& d : options.cluster->devices) d.flops = 1e9, d.flops_tf32 = 4e9, d.flops_half = 16e9, d.bandwidth = 1e18;
  auto product_seconds = [&](const GraphPrecision& precision) {
    Builder b("product");
    b.output(matmul(b.input("x", f32, {512, 512}), b.variable("w", {512, 512})));
    Graph graph = std::move(b).build();
    graph.precision = precision;
    Session session(std::move(graph), Single{.device = parse_devices("gpu:0").front()}, options);
    const PlacedGraph plan = session.plan(1, Mode::infer);
    const Forecast f = forecast(plan);
    double most = 0;
    for (const ForecastLaunch& l : f.launches) most = std::max(most, l.end - l.begin);
    return most;
  };
  const double operations = 2.0 * 512 * 512 * 512;
  EXPECT_NEAR(product_seconds(f32), operations / 1e9, 1e-6);
  EXPECT_NEAR(product_seconds(tf32), operations / 4e9, 1e-6);
  EXPECT_NEAR(product_seconds(bf16), operations / 16e9, 1e-6);
  for (ClusterDevice& d : options.cluster->devices) d.flops_tf32 = d.flops_half = 0;
  EXPECT_NEAR(product_seconds(bf16), operations / 1e9, 1e-6) << "where nothing is said of them they are as those in f32";
}

TEST(ClusterFile, has_a_choice_by_the_program_that_is_asked_for) {
  SessionOptions options{.library = standard_library(), .cluster = read_cluster(read_file(std::filesystem::path(BELFRY_SOURCE) / "clusters" / "k80x4.json"), "k80x4.json"), .forecast = true};
  for (Mode mode : {Mode::step, Mode::infer}) {
    Session session(net_named("transformer").build(options.library->ops), to_strategy(Auto{.devices = parse_devices("gpu:0-3")}), options);
    const PlacedGraph plan = session.plan(64, mode);
    EXPECT_DOUBLE_EQ(session.candidates().front().seconds, forecast(plan).seconds);
    Session mirrored(net_named("transformer").build(options.library->ops), to_strategy(Mirrored{.devices = parse_devices("gpu:0-3")}), options);
    EXPECT_LE(forecast(plan).seconds, forecast(mirrored.plan(64, mode)).seconds * (1 + 1e-9));
  }
}

TEST(Scores, of_placements_that_compute_again_are_those_of_their_plans) {
  auto of = [](int stretches) {
    SessionOptions options;
    options.recompute.stretches = stretches;
    return session_of(to_strategy(Single{.device = cpu(0), .threads = 1}), options);
  };
  Session kept = of(0), again = of(2);
  PlacementScorer scorer = kept.scorer(256, {});
  std::string names;
  for (const std::string& name : again.plan(256).placement.recompute) names += (names.empty() ? "" : ", ") + json_text(name);
  ASSERT_FALSE(names.empty());
  auto line = [&](const std::string& more) { return scorer.line(R"({"belfry": 1, "threads": 1, )" + more + R"("placement": [{"match": "**", "device": "cpu:0"}]})", 1); };
  auto want = [](const PlacedGraph& plan) { return "{\"step_seconds\": " + json_real(forecast(plan).seconds) + ", \"peak\": {\"cpu:0\": " + std::to_string(device_bytes(plan)[0].total()) + "}}"; };
  EXPECT_NE(want(kept.plan(256)), want(again.plan(256)));
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(line(""), want(kept.plan(256)));
    EXPECT_EQ(line("\"recompute\": [" + names + "], "), want(again.plan(256)));
  }
}

TEST(Scores, of_placements_that_compute_stretches_again_are_those_of_their_plans) {
  SessionOptions options{.library = standard_library()};
  options.recompute.stretches = 6;
  auto of = [&](int towers) { return Session(net_named("mobilenet_v2").build(options.library->ops), to_strategy(Single{.device = cpu(0), .towers = towers, .threads = 1}), options); };
  Session one = of(1), six = of(6);
  const PlacedGraph& plan = six.plan(6);
  const std::vector<std::string>& names = one.plan(6).placement.recompute;
  EXPECT_NE(plan.placement.recompute, names) << "the stretches of unlike shares are alike: take another net";
  PlacementScorer scorer = one.scorer(6, {});
  const std::string file = R"({"belfry": 1, "towers": 6, "threads": 1, "recompute": [)" + json_text(names.at(0)) + R"(], "placement": [{"match": "**", "device": "cpu:0"}]})";
  EXPECT_EQ(scorer.line(file, 1), "{\"step_seconds\": " + json_real(forecast(plan).seconds) + ", \"peak\": {\"cpu:0\": " + std::to_string(device_bytes(plan)[0].total()) + "}}");
}

TEST(ClusterFile, has_forecasts_of_every_strategy_where_gpus_do_not_read_each_other) {
  for (const char* name : {"k80x8.json", "p100x8.json", "pascal128x4.json"}) {
    SessionOptions options{.cluster = read_cluster(read_file(std::filesystem::path(BELFRY_SOURCE) / "clusters" / name), name), .forecast = true};
    std::vector<DeviceId> gpus;
    for (const ClusterDevice& d : options.cluster->devices)
      if (d.id.kind == "gpu" && d.id.host < 2) gpus.push_back(d.id);
    for (const StrategyDef& def : standard_strategies())
      for (const char* reduction : {"", "hierarchical"}) {
        const bool can = std::any_of(def.fields.begin(), def.fields.end(), [](const StrategyField& f) { return f.name == "reduction"; });
        if (*reduction && !can) continue;
        Session session = session_of(def.make(gpus, *reduction ? std::map<std::string, std::string>{{"reduction", reduction}} : std::map<std::string, std::string>()), options);
        const PlacedGraph& plan = session.plan(512);
        EXPECT_EQ(verify(plan), std::vector<std::string>()) << name << ", " << def.name << " " << reduction;
        EXPECT_GT(forecast(plan).seconds, 0) << name << ", " << def.name << " " << reduction;
        if (*reduction && def.name == "mirrored") {
          EXPECT_TRUE(std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.sum == SumWay::groups; })) << name;
        }
      }
  }
}

/// The weights of rows, which the loss's mean multiplies with, read nothing: on another stage they would make a phase of the last one wait for the first.
TEST(ClusterFile, has_pipelines_of_a_phase_forward_and_one_back_on_each_stage) {
  const SessionOptions options{.cluster = read_cluster(read_file(std::filesystem::path(BELFRY_SOURCE) / "clusters" / "laptop8.json"), "laptop8.json"), .forecast = true};
  Session session(net_named("transformer").build(standard_library()->ops), Layers{.devices = parse_devices("cpu:0-3"), .towers = 8, .order = PhaseOrder::gpipe}, options);
  for (const PlanStream& s : session.plan(64).streams)
    if (s.name != "main") {
      EXPECT_EQ(s.entries.size(), 2 * 8u) << s.device;
    }
}

TEST(Forecast, of_a_run_stands_beside_its_trace_and_another_plans_trace_is_refused) {
  Session two = session_of(to_strategy(Towers{.devices = {cpu(0), cpu(1)}, .threads = 1}));
  const auto feeds = synthetic_feeds(two.graph(), 6);
  Calibration calibration;
  for (int round = 0; round < 3; ++round) {
    const double seconds = traced_step(two, feeds);
    calibration.add_trace(two.last_program()->bound(), two.trace(), seconds);
  }
  const PlacedGraph& plan = two.last_program()->plan();
  const CostTable table = calibration.table("here");
  const Forecast f = forecast(plan, table);
  EXPECT_EQ(f.by_source[static_cast<std::size_t>(CostSource::guessed)], 0) << "all its launches were measured";
  EXPECT_EQ(f.by_source[static_cast<std::size_t>(CostSource::scaled)], 0);
  const std::string trace = chrome_trace(two.last_program()->bound(), two.trace());
  EXPECT_EQ(read_trace(trace, "t.json", plan, f).size(), f.launches.size() + 1);
  std::string longer = trace;
  longer.insert(longer.find(",\n{\"ph\": \"X\""), ",\n{\"ph\": \"X\", \"pid\": 0, \"tid\": 0, \"ts\": 1e12, \"dur\": 1, \"name\": \"more\"}");
  EXPECT_TRUE(says([&] { read_trace(longer, "t.json", plan, f); }, {"t.json:", "behind the last launch", "the trace is of another plan"}));
  Session one = session_of(to_strategy(Single{.threads = 1}));
  const PlacedGraph& other = one.plan(6);
  EXPECT_TRUE(says([&] { read_trace(trace, "t.json", other, forecast(other)); }, {"t.json:", "the trace is of another plan"}));
  EXPECT_NE(write_forecast(plan, f).find("\"seconds\": "), std::string::npos);
}

}  // namespace
}  // namespace belfry::test
