// Milliseconds per training step of whole nets, and the time from a graph to the first step; medians over rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>

using namespace belfry;

namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

struct Workload {
  const char* name;
  const char* net;
  std::int64_t batch;
};
constexpr Workload kWorkloads[] = {{"mnist_seq_train", "mnist_cnn", 32}, {"mnist_seq_train", "mnist_cnn", 256}, {"mnist_cnn_train", "mnist_cnn_wide", 64}, {"mlp_train", "mlp", 64}};

std::map<std::string, HostTensor> feeds(std::int64_t batch) {
  HostTensor image(f32, {batch, 28, 28, 1}), label(i32, {batch});
  std::uint32_t x = 1;
  for (float& v : image.data<float>()) v = static_cast<float>((x = x * 1664525u + 1013904223u) >> 8) / 16777216.0f;
  for (std::int32_t& v : label.data<std::int32_t>()) v = static_cast<std::int32_t>((x = x * 1664525u + 1013904223u) >> 8) % 10;
  return {{"image", image}, {"label", label}};
}

struct Spread {
  double median, low, high;
};
Spread spread_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  auto at = [&](double share) { return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))]; };
  return {at(0.5), at(0.1), at(0.9)};
}

template <class S>
void measure(const Workload& w, const char* how, const S& strategy) {
  auto library = standard_library();
  Graph graph = net_named(w.net).build(library->ops);
  auto data = feeds(w.batch);
  auto start = Clock::now();
  Session session(graph, strategy, {.library = library});
  session.prepare({w.batch}, Mode::step, {"loss"});
  double ready = ms_since(start);
  std::vector<double> times;
  for (int k = 0; k < 20; ++k) session.step(data, {"loss"});
  auto begin = Clock::now();
  while (times.size() < 30 || (ms_since(begin) < 3000 && times.size() < 1000)) {
    auto step = Clock::now();
    session.step(data, {"loss"});
    times.push_back(ms_since(step));
  }
  Spread s = spread_of(times);
  std::printf("%-16s batch %-4ld %-26s %7.3f ms per step (p10 %.3f, p90 %.3f), ready to step in %.0f ms\n", w.name, static_cast<long>(w.batch), how, s.median, s.low, s.high, ready);
}

}  // namespace

int main() {
  for (const Workload& w : kWorkloads) {
    measure(w, "1 tower, 2 threads", Single{.threads = 2});
    measure(w, "2 towers, 1 thread each", Towers{.devices = parse_devices("cpu:0,cpu:1"), .threads = 1});
  }
}
