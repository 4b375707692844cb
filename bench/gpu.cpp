// Training and inference on a GPU, a line of JSON per result, in the form of the peers' benchmarks:
//   bench_gpu [--device gpu:0] [--seconds 2] [--precision f32,tf32,bf16] [--batch B] [--engines timed|forecast] [--cluster FILE] [--ceilings FILE] [--traces FOLDER] [NAME…]
// Names are those of the workloads, and "launch": what a launch costs with recorded work and without. A step reads its feeds from the host.
// What the GPU reaches at most is measured first, large products and a pass over memory, or read from the file of ceilings that another run left; each line says its share of that roof. Then, case by case, engines of libraries are timed, as bench --calibrate
// does, or are those that cuDNN forecasts. With a cluster file, whose GPU's figures are taken, lines in f32 have the forecast step. Each case leaves a Chrome trace of one step in the folder.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <belfry/belfry.h>
#include <belfry/executor/program.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/calibration.h>
#include <belfry/frontends/session/engines.h>
#include <belfry/frontends/session/trace.h>
#include <belfry/graph/plan/forecast.h>

using namespace belfry;

namespace {

/// What this GPU reaches: operations a second of large products, and bytes of its memory.
struct Ceilings {
  std::map<std::string, double> flops;  // by precision
  double bandwidth = 0;
  bool tells_all(const std::vector<GraphPrecision>& precisions) const {
    return bandwidth > 0 && std::all_of(precisions.begin(), precisions.end(), [&](const GraphPrecision& p) { return flops.contains(std::string(name_of(p))); });
  }
};

struct Options {
  DeviceId device = parse_device("gpu:0");
  double seconds = 2;
  std::int64_t batch = 0;  ///< of all batches this one alone
  bool engines_timed = true;
  std::string traces, ceilings_file;
  std::vector<GraphPrecision> precisions = {f32, tf32, bf16};
  std::optional<ClusterDevice> rates;
  std::optional<Ceilings> ceilings;
  std::vector<std::string> names;
  bool wants(const std::string& name) const { return names.empty() || std::find(names.begin(), names.end(), name) != names.end(); }
};

struct Workload {
  const char *name, *net;
  Settings settings;
  std::vector<std::int64_t> batches;  ///< the one that says the most first, since a process that is ended has told it
  bool trains = true;
};

const std::vector<Workload> kWorkloads = {{"mnist_cnn_train", "mnist_cnn", {}, {128, 256, 32}},
                                          {"cifar10_train", "cifar10", {}, {128, 256, 32}},
                                          {"mobilenet_v2_train", "mobilenet_v2", {}, {128, 256, 32}},
                                          {"resnet50_train", "resnet50", {}, {128, 256, 32}},
                                          {"transformer_train", "transformer", {{"width", 512}, {"heads", 8}, {"length", 128}, {"blocks", 4}, {"packed", 1}}, {128, 256, 32}},
                                          {"mobilenet_v2_infer", "mobilenet_v2", {}, {1, 32}, false}};

struct Times {
  double median = 0, low = 0, high = 0;
  std::size_t steps = 0;
};

/// Warmed up, then until there are 15 steps and the seconds have passed.
Times measured(const std::function<void()>& step, double seconds) {
  using Clock = std::chrono::steady_clock;
  auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  for (int k = 0; k < 5; ++k) step();
  std::vector<double> all;
  for (auto begin = Clock::now(); all.size() < 15 || since(begin) < seconds;) {
    auto t = Clock::now();
    step();
    all.push_back(since(t) * 1e3);
  }
  std::sort(all.begin(), all.end());
  auto at = [&](double share) { return all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))]; };
  return {at(0.5), at(0.1), at(0.9), all.size()};
}

void say(const std::string& variant, const std::string& workload, std::int64_t batch, const Times& t, const std::string& more = "") {
  fmt::print("{{\"peer\": \"belfry\", \"variant\": \"{}\", \"workload\": \"{}\", \"batch\": {}, \"median_ms\": {:.4f}, \"p10_ms\": {:.4f}, \"p90_ms\": {:.4f}, \"per_second\": {:.1f}, \"steps\": {}{}}}\n", variant,
             workload, batch, t.median, t.low, t.high, static_cast<double>(batch) / t.median * 1e3, t.steps, more);
  std::fflush(stdout);
}

/// What a step computes and moves a second, also beside what the GPU was seen to reach, and beside the forecast.
std::string reached(PlacedGraph plan, const Times& t, const GraphPrecision& precision, const Options& o) {
  Work all;
  double roof = 0;
  for (const PlanNode& n : plan.nodes) {
    const Work w = work_of(plan, n, plan.share(n.scope == Scope::tower ? 0 : -1), 1);
    all.flops += w.flops, all.bytes += w.bytes;
    if (o.ceilings) roof += std::max(w.flops / o.ceilings->flops.at(std::string(name_of(precision))), w.bytes / o.ceilings->bandwidth);
  }
  std::string out = fmt::format(", \"gflop\": {:.4g}, \"tflop_per_s\": {:.4g}, \"gb_per_s\": {:.4g}", all.flops / 1e9, all.flops / t.median / 1e9, all.bytes / t.median / 1e6);
  if (o.ceilings) out += fmt::format(", \"share_of_roof\": {:.3f}", roof * 1e3 / t.median);
  if (!o.rates) return out;
  for (ClusterDevice& d : plan.cluster.devices)
    if (d.id.kind == "gpu") {
      const ClusterDevice own = std::exchange(d, *o.rates);
      d.id = own.id, d.space = own.space, d.streams = own.streams, d.memory = own.memory;
    }
  const double forecast_ms = forecast(plan).seconds * 1e3;
  return out + fmt::format(", \"forecast_ms\": {:.4f}, \"forecast_of_measured\": {:.3f}", forecast_ms, forecast_ms / t.median);
}

std::string variant_of(const GraphPrecision& precision, bool graphs) { return std::string(name_of(precision)) + (graphs ? "" : ", no graphs"); }

/// A net on the device, which steps.
struct Case {
  Case(const Workload& w, std::int64_t batch, const GraphPrecision& precision, bool graphs, const Options& o, std::shared_ptr<const CostTable> costs)
      : trains(w.trains) {
    Graph graph = net_named(w.net).build(standard_library()->ops, w.settings);
    graph.precision = precision;
    session.emplace(graph, Single{.device = o.device}, SessionOptions{.cuda_graphs = graphs, .costs = std::move(costs)});
    feeds = synthetic_feeds(session->graph(), batch);
    rows.emplace(feeds);
  }
  void step() {  // the next is copied meanwhile, as fit does
    const auto next = [&] { return Batch(*rows); };
    trains ? session->step(*rows, fetches(), next) : session->predict(*rows, {}, next);
  }
  std::vector<std::string> fetches() const { return trains ? std::vector<std::string>{"loss"} : std::vector<std::string>{}; }

  bool trains;
  std::map<std::string, HostTensor> feeds;
  std::optional<Session> session;
  std::optional<Batch> rows;
};

/// Of a case's kernels, each timed where it runs; null where there is nothing to choose.
std::shared_ptr<const CostTable> engines_of(const Workload& w, std::int64_t batch, const GraphPrecision& precision, const Options& o) {
  Case c(w, batch, precision, true, o, nullptr);
  c.step();
  auto out = std::make_shared<CostTable>();
  out->engines = time_engines(*c.session->last_program());
  return out->engines.empty() ? nullptr : out;
}

/// One that fails says so and does not end the others: a large batch may not fit.
void measure(const Workload& w, std::int64_t batch, const GraphPrecision& precision, bool graphs, const Options& o) try {
  const auto begin = std::chrono::steady_clock::now();
  auto since = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  const std::shared_ptr<const CostTable> engines = o.engines_timed ? engines_of(w, batch, precision, o) : nullptr;
  const double tuned = since();
  Case c(w, batch, precision, graphs, o, engines);
  c.step();
  const double first = since() - tuned;
  const Times t = measured([&] { c.step(); }, o.seconds);
  say(variant_of(precision, graphs), w.name, batch, t, reached(c.session->last_program()->plan(), t, precision, o) + fmt::format(", \"first_step_s\": {:.2f}, \"tuned_s\": {:.2f}", first, tuned));
  if (o.traces.empty() || !graphs) return;
  for (int k = 0; k < 3; ++k) traced_step(*c.session, c.feeds, c.fetches(), c.trains ? Mode::step : Mode::infer);
  write_file(fmt::format("{}/{}_{}_{}.json", o.traces, w.name, batch, variant_of(precision, graphs)), chrome_trace(c.session->last_program()->bound(), c.session->trace()));
} catch (const std::exception& e) {
  fmt::print(stderr, "{} batch {} {}: {}\n", w.name, batch, variant_of(precision, graphs), e.what());
}

/// Without graphs at the first batch alone: what they save is the same at any.
void measure_all(const Workload& w, const Options& o) {
  for (std::int64_t batch : w.batches)
    for (const GraphPrecision& precision : o.precisions)
      if (!o.batch || batch == o.batch) measure(w, batch, precision, true, o);
  if (!o.batch || w.batches[0] == o.batch) measure(w, w.batches[0], o.precisions[0], false, o);
}

/// Seconds of one link of a chain, as what four more cost where nothing disturbs them.
double link_of(const std::function<Graph(int)>& chain, const Options& o) {
  double quiet[2];
  for (int more : {0, 1}) {
    Session session(chain(2 + 4 * more), Single{.device = o.device}, {.fuse = false});
    const auto feeds = synthetic_feeds(session.graph(), 1);
    quiet[more] = measured([&] { session.run(feeds, {"y"}); }, 0).low;
  }
  return (quiet[1] - quiet[0]) / 4 / 1e3;
}

Ceilings ceilings_of(const Options& o) {
  Ceilings out;
  auto chain = [](std::int64_t n, const GraphPrecision& precision, const auto& link) {
    return [=](int links) {
      Builder b("chain");
      const Value w = b.variable("w", {n, n}, {.init = "glorot_uniform"});
      Value x = w * b.input("s", f32, {1});  // what depends on variables alone is no step's
      for (int k = 0; k < links; ++k) x = link(x, w);
      b.output(identity(reduce_sum(x), "y"));
      Graph g = std::move(b).build();
      g.precision = precision;
      return g;
    };
  };
  for (const GraphPrecision& precision : o.precisions) {
    const double n = 4096, seconds = link_of(chain(static_cast<std::int64_t>(n), precision, [](Value x, Value w) { return matmul(x, w); }), o);
    out.flops[std::string(name_of(precision))] = 2 * n * n * n / seconds;
    fmt::print("{{\"peer\": \"belfry\", \"variant\": \"{}\", \"workload\": \"ceiling\", \"batch\": 1, \"median_ms\": {:.4f}, \"tflop_per_s\": {:.4g}}}\n", name_of(precision), seconds * 1e3, 2 * n * n * n / seconds / 1e12);
  }
  const double seconds = link_of(chain(6144, f32, [](Value x, Value) { return neg(x); }), o), bytes = 2.0 * 6144 * 6144 * 4;
  out.bandwidth = bytes / seconds;
  fmt::print("{{\"peer\": \"belfry\", \"variant\": \"bytes\", \"workload\": \"ceiling\", \"batch\": 1, \"median_ms\": {:.4f}, \"gb_per_s\": {:.4g}}}\n", seconds * 1e3, bytes / seconds / 1e9);
  std::fflush(stdout);
  return out;
}

/// Those of a run before, so that shares of the roof have one roof; a line of the file is a precision, or bytes, and its figure.
Ceilings kept_ceilings(const Options& o) {
  Ceilings out;
  if (o.ceilings_file.empty()) return ceilings_of(o);
  if (std::ifstream in(o.ceilings_file); in) {
    std::string name;
    for (double value; in >> name >> value;) (name == "bytes" ? out.bandwidth : out.flops[name]) = value;
  }
  if (out.tells_all(o.precisions)) return out;
  out = ceilings_of(o);
  std::string text = fmt::format("bytes {}\n", out.bandwidth);
  for (const auto& [precision, flops] : out.flops) text += fmt::format("{} {}\n", precision, flops);
  write_file(o.ceilings_file, text);
  return out;
}

/// A chain of so many ops on 16 numbers, none of which becomes part of another.
Times chain(int ops, bool graphs, const Options& o) {
  Builder b("chain");
  Value x = b.input("x", f32, {kBatch, 16});
  for (int k = 0; k < ops; ++k) x = softmax(x);
  b.output(identity(x, "y"));
  Session session(std::move(b).build(), Single{.device = o.device}, {.fuse = false, .cuda_graphs = graphs});
  const auto feeds = synthetic_feeds(session.graph(), 1);
  return measured([&] { session.predict(feeds, {"y"}); }, o.seconds);
}

void launches(const Options& o) {
  for (bool graphs : {true, false}) {
    const Times few = chain(16, graphs, o), many = chain(272, graphs, o);
    say(variant_of(f32, graphs), "launch", 1, many, fmt::format(", \"us_per_op\": {:.3f}", (many.median - few.median) * 1e3 / 256));
  }
}

/// Of the first GPU that a cluster file names.
ClusterDevice rates_of(const std::string& file) {
  for (const ClusterDevice& d : read_cluster(read_file(file), file).devices)
    if (d.id.kind == "gpu" && d.flops > 0 && d.bandwidth > 0) return d;
  throw UserError(file + " says of no GPU what it computes and moves a second");
}

std::vector<GraphPrecision> precisions_of(const std::string& list) {
  std::vector<GraphPrecision> out;
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t to = std::min(list.find(',', from), list.size());
    out.push_back(parse_precision(list.substr(from, to - from)));
    from = to + 1;
  }
  return out;
}

Options options_of(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      o.names.push_back(word);
      continue;
    }
    if (i + 1 == argc) throw UserError(word + " needs a value");
    const std::string value = argv[++i];
    if (word == "--device") o.device = parse_device(value);
    else if (word == "--seconds") o.seconds = std::atof(value.c_str());
    else if (word == "--batch") o.batch = std::atoll(value.c_str());
    else if (word == "--engines" && (value == "timed" || value == "forecast")) o.engines_timed = value == "timed";
    else if (word == "--traces") o.traces = value;
    else if (word == "--ceilings") o.ceilings_file = value;
    else if (word == "--precision") o.precisions = precisions_of(value);
    else if (word == "--cluster") o.rates = rates_of(value);
    else throw UserError(word == "--engines" ? "--engines are timed or forecast, not " + value : "there is no option " + word);
  }
  for (const std::string& name : o.names)
    if (name != "launch" && std::none_of(kWorkloads.begin(), kWorkloads.end(), [&](const Workload& w) { return name == w.name; })) throw UserError("there is no workload '" + name + "'");
  return o;
}

/// Why the device cannot be used; empty if it can.
std::string why_not(const Options& o) try {
  Session(net_named("mlp").build(standard_library()->ops), Single{.device = o.device}).prepare({1});
  return "";
} catch (const std::exception& e) {
  return e.what();
}

}  // namespace

int main(int argc, char** argv) try {
  Options o = options_of(argc, argv);
  if (std::string why = why_not(o); !why.empty()) {
    fmt::print(stderr, "{}\n", why);
    return 77;  // skipped
  }
  if (o.wants("launch")) launches(o);
  if (o.device.kind == "gpu" && o.names != std::vector<std::string>{"launch"}) o.ceilings = kept_ceilings(o);
  for (const Workload& w : kWorkloads)
    if (o.wants(w.name)) measure_all(w, o);
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
