// Training and inference on a GPU, a line of JSON per result, in the form of the peers' benchmarks: bench_gpu [--device gpu:0] [--seconds 2] [NAME…].
// Names are those of the workloads, and "launch": what a launch costs with recorded work and without. A step reads its feeds from the host.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/calibration.h>

using namespace belfry;

namespace {

struct Options {
  DeviceId device = parse_device("gpu:0");
  double seconds = 2;
  std::vector<std::string> names;
  bool wants(const std::string& name) const { return names.empty() || std::find(names.begin(), names.end(), name) != names.end(); }
};

struct Workload {
  const char *name, *net;
  Settings settings;
  std::vector<std::int64_t> batches;
  bool trains = true;
};

const std::vector<Workload> kWorkloads = {{"mnist_cnn_train", "mnist_cnn", {}, {32, 128, 256}},
                                          {"cifar10_train", "cifar10", {}, {32, 128, 256}},
                                          {"mobilenet_v2_train", "mobilenet_v2", {}, {32, 128, 256}},
                                          {"resnet50_train", "resnet50", {}, {32, 128, 256}},
                                          {"transformer_train", "transformer", {{"width", 512}, {"heads", 8}, {"length", 128}, {"blocks", 4}}, {32, 128, 256}},
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

/// One that fails says so and does not end the others: a large batch may not fit.
void measure(const Workload& w, std::int64_t batch, bool graphs, const Options& o) try {
  Session session(net_named(w.net).build(standard_library()->ops, w.settings), Single{.device = o.device}, {.cuda_graphs = graphs});
  const auto data = synthetic_feeds(session.graph(), batch);
  const Batch feeds(data);
  const auto next = [&] { return Batch(feeds); };  // as fit does: copied while a step runs
  const std::vector<std::string> fetches = w.trains ? std::vector<std::string>{"loss"} : std::vector<std::string>{};
  say(graphs ? "f32" : "f32, no graphs", w.name, batch, measured([&] { w.trains ? session.step(feeds, fetches, next) : session.predict(feeds, fetches); }, o.seconds));
} catch (const std::exception& e) {
  fmt::print(stderr, "{} batch {}: {}\n", w.name, batch, e.what());
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
    say(graphs ? "f32" : "f32, no graphs", "launch", 1, many, fmt::format(", \"us_per_op\": {:.3f}", (many.median - few.median) * 1e3 / 256));
  }
}

Options options_of(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool valued = word == "--device" || word == "--seconds";
    if (valued && i + 1 == argc) throw UserError(word + " needs a value");
    if (word == "--device") o.device = parse_device(argv[++i]);
    else if (word == "--seconds") o.seconds = std::atof(argv[++i]);
    else o.names.push_back(word);
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
  const Options o = options_of(argc, argv);
  if (std::string why = why_not(o); !why.empty()) {
    fmt::print(stderr, "{}\n", why);
    return 77;  // skipped
  }
  if (o.wants("launch")) launches(o);
  for (const Workload& w : kWorkloads)
    for (std::int64_t batch : w.batches)
      for (bool graphs : {true, false})
        if (o.wants(w.name)) measure(w, batch, graphs, o);
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
