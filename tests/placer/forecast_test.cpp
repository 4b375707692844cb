#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>

#include <belfry/belfry.h>
#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/links.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

// Each reads the plan, and costs, where they lie.
static_assert(!std::is_constructible_v<Instances, PlacedGraph> && std::is_constructible_v<Instances, const PlacedGraph&>);
static_assert(!std::is_constructible_v<Forecaster, PlacedGraph, const CostTable&> && !std::is_constructible_v<Forecaster, const PlacedGraph&, CostTable>);
static_assert(!std::is_constructible_v<CostModel, PlacedGraph, const CostTable&> && !std::is_constructible_v<CostModel, const PlacedGraph&, CostTable>);

std::shared_ptr<const Graph> training_net(const std::string& name) { return std::make_shared<const Graph>(training_graph(net(name))); }

/// A launch begins when the one before it on its thread and all that BoundPlan makes it wait for have ended, neither sooner nor later.
void expect_begins_as_bound(const PlacedGraph& plan, const std::string& where) {
  const Forecast f = forecast(plan);
  const BoundPlan bound(plan);
  std::vector<std::vector<const ForecastLaunch*>> launches(bound.streams.size());
  for (const ForecastLaunch& l : f.launches) launches[static_cast<std::size_t>(l.stream)].push_back(&l);
  std::map<int, double> thread_ends;
  double last = 0;
  for (auto [s, k] : legal_order(bound)) {
    const Step& step = bound.streams[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
    ASSERT_LT(static_cast<std::size_t>(k), launches[static_cast<std::size_t>(s)].size()) << where;
    const ForecastLaunch& l = *launches[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
    ASSERT_EQ(std::tuple(l.node, l.tower, l.device), std::tuple(step.node, step.tower, step.device)) << where;
    double& thread = thread_ends[plan.streams[static_cast<std::size_t>(s)].thread];
    double begin = thread;
    for (const StepWait& w : step.waits) begin = std::max(begin, launches[static_cast<std::size_t>(w.stream)][static_cast<std::size_t>(w.count) - 1]->end);
    ASSERT_EQ(l.begin, begin) << where << ", '" << plan.nodes[static_cast<std::size_t>(l.node)].name << "' of tower " << l.tower;
    thread = l.end;
    last = std::max(last, l.end);
  }
  EXPECT_EQ(f.seconds, last) << where;
  ASSERT_FALSE(f.path.empty());
  EXPECT_EQ(f.launches[static_cast<std::size_t>(f.path.back())].end, f.seconds) << where;
  for (std::size_t k = 1; k < f.path.size(); ++k) ASSERT_EQ(f.launches[static_cast<std::size_t>(f.path[k])].begin, f.launches[static_cast<std::size_t>(f.path[k - 1])].end) << where << ": the path has no gaps";
}

TEST(Forecast, launches_begin_when_their_thread_and_the_plans_waits_allow) {
  for (const std::string& name : names_of_nets()) {
    auto graph = training_net(name);
    for (const NamedStrategy& s : strategies(5, 2)) {
      Cluster cluster = sim_cluster(2, true, 2);
      cluster.cores = 3;
      expect_begins_as_bound(place(graph, s.strategy, cluster, 7, {.fetches = fetches_of(*graph)}), name + ", " + s.name);
    }
  }
}

/// GPUs on a switch, and a host on slower links; figures that are easily reckoned with.
Cluster gpus(int n) {
  Cluster c;
  std::vector<DeviceId> all;
  for (int i = 0; i < n; ++i) {
    ClusterDevice d{{0, "gpu", i, -1}, "gpu:" + std::to_string(i)};
    d.flops = 1e9, d.bandwidth = 1e9, d.launch = 1e-6;
    c.devices.push_back(d);
    all.push_back(d.id);
  }
  ClusterDevice host{cpu(0), "host"};
  host.flops = host.bandwidth = 1e9;
  c.devices.push_back(host);
  c.links = {{all, "switch", 1e6, 1e-3}, {all, "host", 1e5, 2e-3}};
  return c;
}

/// y = x w with x (batch, 3), w (3, width); trained: by default a gradient of six floats to join.
std::shared_ptr<const Graph> line(std::int64_t width = 2) {
  Builder b("line");
  Value y = matmul(b.input("x", f32, {kBatch, 3}), b.variable("w", {3, width}, {.init = "normal", .init_value = 0.3}));
  b.minimize(reduce_sum(y * y), Sgd{.learning_rate = 0.1f});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

double carried(const Forecast& f, const std::string& from, const std::string& to) {
  for (const LinkForecast& l : f.links)
    if (l.from == from && l.to == to) return l.bytes;
  return 0;
}

TEST(Forecast, an_all_reduce_carries_the_rings_bytes_and_takes_as_long_on_all_its_devices) {
  const int n = 4;
  PlacedGraph plan = place(line(256), to_strategy(Mirrored{.devices = first_gpus(n), .towers = n, .threads = 1}), gpus(n), 8);
  const Forecast f = forecast(plan);
  const double bytes = 3 * 256 * 4;
  EXPECT_NEAR(carried(f, "gpu:1", "switch"), 2.0 * (n - 1) / n * bytes, 1e-9);
  EXPECT_NEAR(carried(f, "switch", "gpu:3"), 2.0 * (n - 1) / n * bytes, 1e-9);
  EXPECT_NEAR(carried(f, "host", "gpu:0"), 2 * 3 * 4, 1e-9) << "its rows of the feed";
  std::map<std::string, int> joined;
  for (const ForecastLaunch& l : f.launches) {
    const PlanNode& node = plan.nodes[static_cast<std::size_t>(l.node)];
    if (node.op != "aggregate" && node.op != "all_gather") continue;
    ++joined[node.op];
    // The way over the switch with its latency, 3/4 of the bytes at 1e6 a second; the launch, and in memory five ranges, or the whole.
    EXPECT_NEAR(l.end - l.begin, 2e-3 + 0.75 * bytes / 1e6 + 1e-6 + (node.ranged ? 5 * bytes / n : bytes) / 1e9, 1e-12);
    EXPECT_NEAR(l.moving, l.end - l.begin, 1e-12);
  }
  EXPECT_EQ(joined, (std::map<std::string, int>{{"aggregate", n}, {"all_gather", n}}));
}

TEST(Forecast, a_small_all_reduce_goes_from_each_to_each_at_once) {
  const int n = 4;
  PlacedGraph plan = place(line(), to_strategy(Mirrored{.devices = first_gpus(n), .towers = n, .threads = 1}), gpus(n), 8);
  const double bytes = 3 * 2 * 4;
  EXPECT_NEAR(carried(forecast(plan), "gpu:1", "switch"), (n - 1) * bytes, 1e-9);
  for (const ForecastLaunch& l : forecast(plan).launches)
    if (plan.nodes[static_cast<std::size_t>(l.node)].op == "aggregate") {
      EXPECT_NEAR(l.end - l.begin, 2e-3 + 3 * bytes / 1e6 + 1e-6 + 5 * bytes / 1e9, 1e-12);
    }
}

TEST(Forecast, feeds_share_the_hosts_link) {
  // Twelve bytes land for each of eight towers, over links of their own; with one link for all of them it takes eight times the bytes.
  auto seconds_of_feeds = [&](const Cluster& cluster) {
    return forecast(place(line(), to_strategy(Mirrored{.devices = first_gpus(8), .towers = 8, .threads = 1}), cluster, 8)).landed;
  };
  Cluster apart = gpus(8), together = gpus(8);
  together.links[1].to = "bus";
  together.links.push_back({{cpu(0)}, "bus", 1e5, 0});
  EXPECT_NEAR(seconds_of_feeds(apart), 2e-3 + 12 / 1e5, 1e-9);
  EXPECT_NEAR(seconds_of_feeds(together), 2e-3 + 8 * 12 / 1e5, 1e-9);
}

TEST(Forecast, names_what_keeps_more_devices_from_helping) {
  auto why = [&](const Cluster& cluster, std::int64_t batch, const Strategy& s) {
    PlacedGraph plan = place(line(), s, cluster, batch);
    return why_not_more(plan, forecast(plan));
  };
  EXPECT_THAT(why(gpus(2), 2, to_strategy(Mirrored{.devices = first_gpus(2), .towers = 2, .threads = 1})), testing::HasSubstr("the batch of 2 has no more rows"));
  EXPECT_THAT(why(gpus(2), 1000, to_strategy(Towers{.devices = first_gpus(2), .variables = cpu(0), .towers = 2, .threads = 1})), testing::HasSubstr("bytes on their way over host -> gpu:"));
  Cluster fast = gpus(2);
  for (ClusterLink& l : fast.links) l.bandwidth = 1e15, l.latency = 0;
  EXPECT_EQ(why(fast, 1 << 20, to_strategy(Mirrored{.devices = first_gpus(2), .towers = 2, .threads = 1})), "");
  fast.devices.back().bandwidth = 10;
  EXPECT_THAT(why(fast, 1000, to_strategy(Towers{.devices = first_gpus(2), .variables = cpu(0), .towers = 2, .threads = 1})), testing::HasSubstr("is what cpu:0 does for all towers"));
  for (ClusterDevice& d : fast.devices) d.launch = 1, d.bandwidth = 1e15;
  EXPECT_THAT(why(fast, 1000, to_strategy(Mirrored{.devices = first_gpus(2), .towers = 2, .threads = 1})), testing::HasSubstr("launching of kernels, whose shares of 500 rows are too small"));
}

TEST(Links, that_do_not_lead_to_a_device_keep_plans_and_forecasts_from_it) {
  const Cluster whole = gpus(2);
  Cluster cluster = whole;
  cluster.links = {{{whole.devices[0].id}, "host", 1e5, 0}};
  const Strategy two = to_strategy(Mirrored{.devices = first_gpus(2), .towers = 2, .threads = 1});
  for (const PlacementRule& rule : {PlacementRule{"tower_1/**", {first_gpus(2)[1]}, "moved"}, PlacementRule{"w", first_gpus(2), "moved"}})
    EXPECT_TRUE(says([&] { place(line(), to_strategy(Towers{.devices = first_gpus(1), .towers = 2, .threads = 1}), cluster, 8, {.rules = {rule}}); }, {"and no link joins the spaces gpu:1 and host", "--move", "--devices", "links join them"}));
  EXPECT_TRUE(says([&] { place(line(), two, cluster, 8); }, {"no link joins the spaces"}));
  EXPECT_NO_THROW(place(line(), to_strategy(Mirrored{.devices = first_gpus(1), .towers = 2, .threads = 1}), cluster, 8)) << "nothing goes to the other one";
  PlacedGraph plan = place(line(), two, whole, 8);
  plan.cluster = cluster;
  EXPECT_TRUE(says([&] { forecast(plan); }, {"no link of the cluster leads from ", "gpu:1", "\"links\""}));
}

TEST(Costs, of_sums_go_by_how_many_parts_they_add) {
  const PlacedGraph plan = place(line(), to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .threads = 1}), sim_cluster(2), 4);
  for (const PlanNode& n : plan.nodes) {
    if (n.op != kAggregate) continue;
    EXPECT_NE(cost_key(plan, n, n.by_group[0], plan.share(-1), 1), cost_key(plan, n, n.by_group[0], plan.share(-1), 2));
  }
}

/// x·u + y·v + z: the second product reads and writes the sum once more.
TEST(Costs, of_a_sum_of_products_count_what_each_adds_to) {
  Builder b("sum");
  const Value u = b.variable("u", {3, 5}), v = b.variable("v", {3, 5});
  Value sum = add_n({matmul(b.input("x", f32, {kBatch, 3}), u), matmul(b.input("y", f32, {kBatch, 3}), v), b.input("z", f32, {kBatch, 5})});
  b.output(sum);
  auto graph = std::make_shared<const Graph>(run_passes(inference_passes(), std::move(b).build()));
  PlaceOptions options;
  options.groups = find_gpu_groups;
  options.fetches = {{graph->name_of(graph->outputs[0]), graph->outputs[0]}};
  const PlacedGraph plan = place(graph, to_strategy(Single{.device = cpu(0), .threads = 1}), local_cluster({cpu(0)}, 1), 7, options);
  const auto fused = std::find_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return is_op(n, kFused); });
  ASSERT_NE(fused, plan.nodes.end());
  EXPECT_EQ(work_of(plan, *fused, plan.share(0), 1).bytes, 4 * (2 * 7 * 3 + 2 * 3 * 5 + 7 * 5 + 7 * 5 + 2 * 7 * 5));
}

TEST(Costs, are_those_measured_and_lie_on_the_line_between_rows_that_were) {
  auto graph = line();
  auto plan_of = [&](std::int64_t batch) { return place(graph, to_strategy(Single{.device = cpu(0), .threads = 1}), local_cluster({cpu(0)}, 1), batch); };
  CostTable table;
  for (std::int64_t batch : {4, 16}) {
    PlacedGraph plan = plan_of(batch);
    for (const PlanNode& n : plan.nodes) {
      if (n.scope == Scope::state) continue;
      const Share share = plan.share(n.scope == Scope::tower ? 0 : -1);
      const Variant& v = n.scope == Scope::tower ? n.by_class[0] : n.by_group[0];
      const std::int64_t rows = cost_rows(plan, n, share);
      auto& known = table.kernels[cost_key(plan, n, v, share, 1)];
      if (known.empty() || known.back().rows < rows) known.push_back({rows, 1e-3 * static_cast<double>(rows + 1), work_of(plan, n, share, 1)});
    }
  }
  auto seconds_at = [&](std::int64_t batch) {
    PlacedGraph plan = plan_of(batch);
    const Forecast f = forecast(plan, table);
    for (const ForecastLaunch& l : f.launches)
      if (plan.nodes[static_cast<std::size_t>(l.node)].name == "matmul") return l.end - l.begin;
    return -1.0;
  };
  EXPECT_NEAR(seconds_at(4), 5e-3, 1e-12);
  EXPECT_NEAR(seconds_at(10), 11e-3, 1e-12);
  EXPECT_NEAR(seconds_at(32), 33e-3, 1e-12);
  PlacedGraph plan = plan_of(10);
  EXPECT_GT(forecast(plan, table).by_source[static_cast<std::size_t>(CostSource::between)], 0);
  EXPECT_EQ(forecast(plan, table).by_source[static_cast<std::size_t>(CostSource::guessed)], 0);
}

TEST(Links, are_shared_by_max_min) {
  std::vector<Way> ways = {{"a", "b", 10, 0}, {"b", "c", 4, 0}};
  std::vector<Flow> flows = {{{0}, 1, 0, 0}, {{0, 1}, 1, 0, 1}, {{1}, 1, 0, 2}};
  MaxMin(ways).share(flows);
  EXPECT_EQ(flows[0].rate, 8);
  EXPECT_EQ(flows[1].rate, 2);
  EXPECT_EQ(flows[2].rate, 2);
}

TEST(Links, take_the_fewest_and_of_those_the_widest) {
  Cluster c = gpus(2);
  Links links(c);
  std::vector<int> r = links.route(0, 1);
  ASSERT_EQ(r.size(), 2u);
  EXPECT_EQ(links.ways()[static_cast<std::size_t>(r[0])].to, "switch") << "not over the host, which is as near and slower";
  EXPECT_EQ(links.route(0, 2).size(), 1u);
  std::reverse(c.links.begin(), c.links.end());
  Links turned(c);
  EXPECT_EQ(turned.ways()[static_cast<std::size_t>(turned.route(0, 1)[0])].to, "switch") << "whichever stands first";
  EXPECT_TRUE(links.route(1, 1).empty());
}

TEST(Links, lead_through_hosts_and_switches_but_through_no_gpu) {
  Cluster c = gpus(3);  // a chain of GPUs, and the host
  c.links = {{{c.devices[0].id}, "gpu:1", 1e9, 0}, {{c.devices[1].id}, "gpu:2", 1e9, 0}, {first_gpus(3), "host", 1e5, 0}};
  Links links(c);
  EXPECT_EQ(links.route(0, 1).size(), 1u);
  const std::vector<int> r = links.route(0, 2);
  ASSERT_EQ(r.size(), 2u);
  EXPECT_EQ(links.ways()[static_cast<std::size_t>(r[0])].to, "host");
}

/// Two layers: the gradient of the first is computed while that of the second is on its way.
std::shared_ptr<const Graph> two_layers() {
  Builder b("two");
  Value y = matmul(relu(matmul(b.input("x", f32, {kBatch, 64}), b.variable("w", {64, 64}, {.init = "normal", .init_value = 0.3}))), b.variable("v", {64, 64}, {.init = "normal", .init_value = 0.3}));
  b.minimize(reduce_sum(y * y), Sgd{.learning_rate = 0.1f});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

TEST(Forecast, collectives_and_sums_of_what_others_hold_take_the_gpu_for_what_they_do_not_overlap) {
  auto seconds = [](const std::shared_ptr<const Graph>& graph, double overlap, Reduce way) {
    Cluster c = gpus(2);
    for (ClusterDevice& d : c.devices) d.overlap = overlap;
    for (ClusterLink& l : c.links) l.bandwidth = 2e7, l.latency = 0;
    return forecast(place(graph, to_strategy(Mirrored{.devices = first_gpus(2), .towers = 2, .threads = 1, .reduction = way}), c, 256)).seconds;
  };
  for (const Reduce way : {Reduce::tree, Reduce::to_one}) {
    EXPECT_GT(seconds(two_layers(), 0.5, way), 1.01 * seconds(two_layers(), 1, way));
    EXPECT_GT(seconds(two_layers(), 0, way), 1.01 * seconds(two_layers(), 0.5, way));
    EXPECT_EQ(seconds(line(256), 0, way), seconds(line(256), 1, way)) << "nothing to compute beside it";
  }
}

TEST(Forecast, moves_take_the_memory_from_kernels_that_are_short_of_it) {
  auto waited = [](double flops, Reduce way) {
    Cluster c = gpus(2);
    for (ClusterDevice& d : c.devices) d.flops = flops;
    for (ClusterLink& l : c.links) l.bandwidth = 5e8, l.latency = 0;  // half of the memory's
    const Forecast f = forecast(place(two_layers(), to_strategy(Mirrored{.devices = first_gpus(2), .towers = 2, .threads = 1, .reduction = way}), c, 256));
    double busy = 0, own = 0;
    for (const DeviceForecast& d : f.devices) busy += d.busy;
    for (double s : f.by_source) own += s;
    return (busy - own) / own;
  };
  for (const Reduce way : {Reduce::tree, Reduce::to_one}) {
    EXPECT_GT(waited(1e15, way), 0.02);
    EXPECT_LT(waited(1e7, way), 1e-3) << "while it computes its memory has time";
  }
}

TEST(Forecast, a_thread_that_has_waited_long_must_be_woken) {
  auto woken = [](double launch) {
    Cluster c = local_cluster({cpu(0), cpu(1)}, 2);
    c.devices[1].launch = launch;
    PlacedGraph plan = place(line(), to_strategy(Towers{.devices = {cpu(0), cpu(1)}, .variables = cpu(0), .towers = 2, .threads = 1}), c, 8);
    CostTable asleep;
    asleep.wake = 1;
    return forecast(plan, asleep).seconds - forecast(plan).seconds;
  };
  EXPECT_GT(woken(1), 0.5);
  EXPECT_EQ(woken(1e-7), 0) << "nobody waits for as long as threads spin";
}

TEST(Forecast, what_was_measured_here_is_not_of_a_machine_that_the_cluster_describes) {
  CostTable slow;
  slow.dispatch = slow.handoff = slow.wake = slow.step = 1;
  const Strategy on_gpus = to_strategy(Towers{.devices = first_gpus(2), .variables = cpu(0), .towers = 2, .threads = 1});
  const PlacedGraph described = place(line(), on_gpus, gpus(2), 8);
  EXPECT_EQ(forecast(described, slow).seconds, forecast(described).seconds);
  Cluster bare = gpus(2);
  bare.devices.back() = {cpu(0), "host"};
  const PlacedGraph measured = place(line(), on_gpus, bare, 8);
  EXPECT_GE(forecast(measured, slow).seconds, forecast(measured).seconds + 3) << "a step, a thread that is woken, and a launch of the host";
}

/// Equal layers, cut into equal stages, by requests or by cost: what a pipeline of p stages and m micro-batches leaves idle of p devices' time.
double bubble(int stages, int micro_batches, PhaseOrder order, int chunks, bool fetched = false, bool by_cost = false) {
  Builder b("layers");
  Value h = b.input("x", f32, {kBatch, 512}) + b.variable("first", {512});  // which the first layer has a gradient for
  const int layers = stages * chunks * 2;
  for (int k = 0; k < layers; ++k) {
    auto on = b.device("sim:" + std::to_string(k / 2 % stages));
    h = matmul(h, b.variable("w" + std::to_string(k), {512, 512}, {.init = "normal", .init_value = 0.3, .trainable = false}));  // one product each way
  }
  {
    auto on = b.device("sim:" + std::to_string(stages - 1));
    h = reduce_sum(square(h));
  }
  b.minimize(h, Sgd{.learning_rate = 0.1f});
  Graph built = run_passes(training_passes(), std::move(b).build());
  for (NodeId id = 0; by_cost && id < built.size(); ++id) built.edit(id).device.reset();
  auto graph = std::make_shared<const Graph>(std::move(built));
  Cluster cluster;
  std::vector<DeviceId> devices;
  for (int i = 0; i < stages; ++i) {
    ClusterDevice d{{0, "sim", i, -1}, "sim:" + std::to_string(i)};
    d.flops = 1e9, d.bandwidth = 1e15;
    cluster.devices.push_back(d);
    devices.push_back(d.id);
  }
  ClusterDevice host{cpu(0), "host"};
  host.flops = host.bandwidth = 1e18;
  cluster.devices.push_back(host);
  cluster.cores = stages + 1;
  const std::int64_t batch = 64 * micro_batches;
  PlaceOptions options;
  if (fetched) options.fetches = {{"loss", graph->losses.front()}};
  PlacedGraph plan = place(graph, to_strategy(Layers{.devices = devices, .towers = micro_batches, .order = order, .chunks = chunks, .threads = 1}), cluster, batch, options);
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  const double work = 2.0 * layers * 2 * 512 * 512 * static_cast<double>(batch) / 1e9;  // of all devices together
  const Forecast f = forecast(plan);
  return 1 - work / (f.seconds * stages);
}

TEST(Forecast, pipelines_have_the_bubble_of_the_literature) {
  for (int p : {2, 4})
    for (int m : {4, 8}) {
      const double expected = (p - 1.0) / (m + p - 1.0);
      for (bool fetched : {false, true}) EXPECT_NEAR(bubble(p, m, PhaseOrder::gpipe, 1, fetched), expected, 2e-3) << "GPipe, " << (fetched ? "with its loss, " : "") << p << " stages, " << m << " micro-batches";
      for (bool fetched : {false, true}) EXPECT_NEAR(bubble(p, m, PhaseOrder::one_f_one_b, 1, fetched), expected, 2e-3) << "1F1B, " << (fetched ? "with its loss, " : "") << p << " stages, " << m << " micro-batches";
      for (int v : {2, 3})
        for (auto [fetched, by_cost] : {std::pair(false, false), {true, false}, {true, true}}) EXPECT_NEAR(bubble(p, m, PhaseOrder::interleaved, v, fetched, by_cost), (p - 1.0) / (v * m + p - 1.0), 2e-3) << v << (by_cost ? " chunks by cost, " : " chunks, ") << (fetched ? "with its loss, " : "") << p << " stages, " << m << " micro-batches";
    }
}

}  // namespace
}  // namespace belfry::test
