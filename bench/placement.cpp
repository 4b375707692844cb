// What placing costs: CPU time (the median of five, of three above 50,000 nodes) and kept bytes of dense layers with momentum from 1,000 to
// 100,000 nodes, a child process per case; a drawing of such tables with the exponents of their growth; how many placements of 500 nodes are
// scored a second; what `auto` takes for a net on a cluster, and how long it looks.
// placement [--most NODES] [--strategy NAME]… | --svg FILE < TABLES | --scores [COUNT [NET]] | --auto NET CLUSTER_FILE ROWS
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>

#include <fmt/format.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/choose.h>
#include <belfry/placer/scorer.h>
#include <belfry/placer/strategies/strategies.h>

using namespace belfry;

namespace {

std::vector<DeviceId> sims(int n) {
  std::vector<DeviceId> out;
  for (int i = 0; i < n; ++i) out.push_back({0, "sim", i, -1});
  return out;
}

Graph deep(int layers) {
  Builder b("deep");
  Value h = b.input("x", f32, {kBatch, 8});
  for (int i = 0; i < layers; ++i) {
    auto scope = b.scope("l" + std::to_string(i));
    h = relu(matmul(h, b.variable("w", {8, 8}, {.init = "normal", .init_value = 0.3})) + b.variable("b", {8}));
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  return run_passes(training_passes(), std::move(b).build());
}

std::int64_t resident_kib() {
  std::ifstream in("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  in >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

struct Row {
  std::string strategy;
  int devices = 0, nodes = 0;
  double place = 0, forecast = 0;
  std::int64_t kib = 0;
};

const std::vector<std::string> kStrategies = {"towers", "mirrored", "sharded", "layers", "pipeline", "hybrid"};

/// A tower per device, with `spread` their variables over them all; layers with one, pipelines with eight micro-batches, as hybrid in rows of eight devices or less.
Strategy strategy_of(const std::string& name, int n) {
  if (name == "towers") return to_strategy(Towers{.devices = sims(n), .towers = n, .threads = 1});
  if (name == "spread") return to_strategy(Towers{.devices = sims(n), .spread = true, .towers = n, .threads = 1});
  if (name == "mirrored") return to_strategy(Mirrored{.devices = sims(n), .towers = n, .threads = 1});
  if (name == "sharded") return to_strategy(Sharded{.devices = sims(n), .towers = n, .threads = 1});
  if (name == "layers") return to_strategy(Layers{.devices = sims(n), .threads = 1});
  if (name == "pipeline") return to_strategy(Layers{.devices = sims(n), .towers = 8, .order = PhaseOrder::one_f_one_b, .threads = 1});
  const int replicas = n > 8 ? n / 8 : 2;
  return to_strategy(Layers{.devices = sims(n), .towers = 2 * replicas, .replicas = replicas, .order = PhaseOrder::one_f_one_b, .threads = 1});
}

Row measured(const std::string& strategy, int n, int layers) {
  auto graph = std::make_shared<const Graph>(deep(layers));
  const Cluster cluster = local_cluster(sims(n), 2);
  Row out{strategy, n, static_cast<int>(graph->size())};
  std::vector<double> placed, walked;
  const int rounds = graph->size() > 50000 ? 3 : 5;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t before = resident_kib();
    double start = cpu_seconds();
    const PlacedGraph plan = place(graph, strategy_of(strategy, n), cluster, 2048);
    placed.push_back(cpu_seconds() - start);
    if (round == 0) out.kib = resident_kib() - before;
    start = cpu_seconds();
    if (n <= 64) forecast(plan);  // of a thousand towers: millions of launches
    walked.push_back(cpu_seconds() - start);
  }
  std::sort(placed.begin(), placed.end());
  std::sort(walked.begin(), walked.end());
  out.place = placed[placed.size() / 2];
  out.forecast = n <= 64 ? walked[walked.size() / 2] : 0;
  return out;
}

/// In a process of its own, so that the bytes kept are its own.
void alone(const std::string& strategy, int n, int layers) {
  int ends[2];
  if (pipe(ends)) std::exit(1);
  if (pid_t child = fork(); child == 0) {
    const Row r = measured(strategy, n, layers);
    const std::string text = fmt::format("{} {} {} {}", r.nodes, r.place, r.forecast, r.kib);
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text(256, '\0');
  const ssize_t got = read(ends[0], text.data(), text.size() - 1);
  close(ends[0]);
  wait(nullptr);
  Row out{strategy, n};
  long long kib = 0;
  if (got <= 0 || std::sscanf(text.c_str(), "%d %lf %lf %lld", &out.nodes, &out.place, &out.forecast, &kib) != 4) std::exit(1);
  out.kib = kib;
  fmt::print("{:9} {:7} {:8} {:9.4f} {:11.4f} {:10}\n", out.strategy, out.devices, out.nodes, out.place, out.forecast, out.kib);
  std::fflush(stdout);
}

/// Of one strategy on eight devices.
std::vector<Row> of(const std::vector<Row>& rows, const std::string& strategy) {
  std::vector<Row> out;
  for (const Row& r : rows)
    if (r.strategy == strategy && r.devices == 8) out.push_back(r);
  return out;
}

/// Of the straight line through the logarithms, by least squares: 1 is what grows linearly.
double exponent(const std::vector<Row>& rows, double Row::*seconds) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const Row& r : rows) {
    const double a = std::log(r.nodes), b = std::log(std::max(r.*seconds, 1e-6));
    n += 1, x += a, y += b, xx += a * a, xy += a * b;
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

/// Lines of tables as they were printed.
std::vector<Row> read_rows() {
  std::vector<Row> out;
  for (std::string line; std::getline(std::cin, line);) {
    char name[32];
    Row r;
    if (std::sscanf(line.c_str(), "%31s %d %d %lf %lf", name, &r.devices, &r.nodes, &r.place, &r.forecast) != 5) continue;
    r.strategy = name;
    out.push_back(r);
  }
  return out;
}

/// Seconds over nodes, both axes linear: a straight line is what grows linearly.
void write_svg(const std::string& file, const std::vector<Row>& rows) {
  double most = 0, nodes = 0;
  for (const Row& r : rows) most = std::max({most, r.place, r.forecast}), nodes = std::max(nodes, static_cast<double>(r.nodes));
  auto x = [&](double n) { return 60 + 520 * n / nodes; };
  auto y = [&](double s) { return 300 - 260 * s / most; };
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"350\" font-family=\"sans-serif\" font-size=\"12\">\n";
  out += "<rect width=\"640\" height=\"350\" fill=\"white\"/>\n<path d=\"M60 40V300H580\" fill=\"none\" stroke=\"black\"/>\n";
  for (int k = 1; k <= 5; ++k) {
    out += fmt::format("<text x=\"{:.0f}\" y=\"318\" text-anchor=\"middle\">{:.0f}</text>\n", x(nodes * k / 5), nodes * k / 5);
    out += fmt::format("<text x=\"54\" y=\"{:.0f}\" text-anchor=\"end\">{:.2f}</text>\n", y(most * k / 5) + 4, most * k / 5);
  }
  out += "<text x=\"320\" y=\"340\" text-anchor=\"middle\">nodes of the graph, on 8 devices</text>\n<text x=\"60\" y=\"28\">seconds</text>\n";
  const char* colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#ff7f0e"};
  for (std::size_t k = 0; k < kStrategies.size(); ++k) {
    std::string placed, walked;
    for (const Row& r : of(rows, kStrategies[k])) {
      placed += fmt::format("{}{:.1f} {:.1f}", placed.empty() ? "M" : "L", x(r.nodes), y(r.place));
      walked += fmt::format("{}{:.1f} {:.1f}", walked.empty() ? "M" : "L", x(r.nodes), y(r.forecast));
    }
    out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\"/>\n<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-dasharray=\"4\"/>\n", placed, colours[k], walked, colours[k]);
    out += fmt::format("<text x=\"80\" y=\"{}\" fill=\"{}\">{}: place, forecast dashed</text>\n", 56 + 16 * k, colours[k], kStrategies[k]);
  }
  std::ofstream(file) << out << "</svg>\n";
}

std::shared_ptr<const Graph> training_graph(const std::string& net) {
  return std::make_shared<const Graph>(run_passes(training_passes(), net_named(net).build(std::make_shared<const OpSet>(standard_ops()))));
}

/// Cuts at random places, or devices at random.
std::vector<PlacementRule> random_rules(const Graph& g, const std::vector<DeviceId>& devices, std::mt19937_64& rng, bool cuts) {
  std::vector<PlacementRule> out;
  std::vector<int> bounds;
  for (std::size_t i = 1; i < devices.size(); ++i) bounds.push_back(static_cast<int>(rng() % static_cast<std::size_t>(g.size())));
  std::sort(bounds.begin(), bounds.end());
  std::vector<std::size_t> at(static_cast<std::size_t>(g.size()));
  for (NodeId id = 0; id < g.size(); ++id) {
    std::size_t d = cuts ? static_cast<std::size_t>(std::upper_bound(bounds.begin(), bounds.end(), id) - bounds.begin()) : rng() % devices.size();
    if (g.node(id).of >= 0 && g.node(id).of < id) d = at[static_cast<std::size_t>(g.node(id).of)];
    at[static_cast<std::size_t>(id)] = d;
    out.push_back({g.node(id).name, {devices[d]}, "drawn"});
  }
  out.push_back({"**", {devices[0]}, "the rest"});
  return out;
}

/// Placements a second, and whether the first few have the figures of their finished plans.
/// Step time and bytes, or the time alone.
void scores(const std::shared_ptr<const Graph>& graph, const PlaceOptions& options, int towers, bool cuts, bool bytes, int count) {
  const Cluster cluster = local_cluster(sims(4), 4);
  std::mt19937_64 rng(1);
  std::vector<Placement> all;
  for (int i = 0; i < count; ++i) all.push_back({towers, 64, Combine::global_mean, 1, random_rules(*graph, sims(4), rng, cuts)});
  Scorer scorer(graph, cluster, {}, options);
  std::size_t nodes = 0;
  for (int i = 0; i < std::min(count, 3); ++i) {
    const PlacedGraph plan = place(graph, all[static_cast<std::size_t>(i)], cluster, options);
    nodes += plan.nodes.size();
    const Placement& p = all[static_cast<std::size_t>(i)];
    if (const double seconds = forecast(plan).seconds; scorer(p).step_seconds != seconds || scorer.seconds(p) != seconds) fmt::print("another figure than the finished plan's\n");
  }
  std::vector<double> rates;  // of five shares of them
  for (std::size_t share = 0; share < 5; ++share) {
    const double start = cpu_seconds();
    const std::size_t shared = (all.size() - share + 4) / 5;
    for (std::size_t i = share; i < all.size(); i += 5) bytes ? scorer(all[i]).step_seconds : scorer.seconds(all[i]);
    rates.push_back(static_cast<double>(shared) / (cpu_seconds() - start));
  }
  std::sort(rates.begin(), rates.end());
  fmt::print("{} nodes, {} tower{}, {:30} {:4} in the plan, {:14}: {:5.0f} placements a second of CPU time ({:.0f} to {:.0f})\n", graph->size(), towers, towers == 1 ? " " : "s",
             cuts ? "cut at three random places:" : "each node on a random device:", nodes / 3, bytes ? "time and bytes" : "time alone", rates[2], rates[0], rates[4]);
}

/// Over all GPUs of a cluster, so many rows each step; every strategy that was scored or refused, the best first.
void choose_for(const std::string& net, const std::string& file, std::int64_t rows) {
  const Cluster cluster = read_cluster(read_file(file), file);
  const auto graph = training_graph(net);
  std::vector<DeviceId> gpus;
  for (const ClusterDevice& d : cluster.devices)
    if (d.id.kind == "gpu") gpus.push_back(d.id);
  const double start = cpu_seconds();
  const std::vector<Candidate> found = choose(graph, to_strategy(Auto{.devices = gpus}), cluster, rows, {.groups = find_gpu_groups});
  fmt::print("{} on {} GPUs, {} rows: {} strategies in {:.1f} s of CPU time\n{}", net, gpus.size(), rows, found.size(), cpu_seconds() - start, describe(found));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 4 && !std::strcmp(argv[1], "--auto")) {
    choose_for(argv[2], argv[3], std::atoll(argv[4]));
    return 0;
  }
  if (argc > 1 && !std::strcmp(argv[1], "--scores")) {
    const int count = argc > 2 ? std::max(5, std::atoi(argv[2])) : 1000;
    const auto graph = argc > 3 ? training_graph(argv[3]) : std::make_shared<const Graph>(deep(35));
    PlaceOptions options;
    if (argc > 3) options.groups = find_gpu_groups;
    for (int towers : {1, 4})
      for (bool cuts : {true, false})
        for (bool bytes : {true, false}) scores(graph, options, towers, cuts, bytes, count);
    return 0;
  }
  if (argc > 2 && !std::strcmp(argv[1], "--svg")) {
    const std::vector<Row> rows = read_rows();
    write_svg(argv[2], rows);
    for (const std::string& strategy : kStrategies)
      if (const std::vector<Row> mine = of(rows, strategy); mine.size() > 1)
        fmt::print("{:9} seconds grow as nodes to the power {:.2f}, those of its forecast {:.2f}\n", strategy, exponent(mine, &Row::place), exponent(mine, &Row::forecast));
    return 0;
  }
  int most = 100000;
  std::vector<std::string> strategies;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--most")) most = std::atoi(argv[i + 1]);
    if (!std::strcmp(argv[i], "--strategy")) strategies.push_back(argv[i + 1]);
  }
  if (strategies.empty()) strategies = kStrategies;
  fmt::print("strategy  devices    nodes   place s  forecast s   kept KiB\n");
  for (const std::string& strategy : strategies) {
    for (int layers : {71, 214, 714, 2142, 7142})  // 14 nodes each
      if (14 * layers <= most) alone(strategy, 8, layers);
    if (most >= 10000) alone(strategy, 1024, 714);
  }
}
