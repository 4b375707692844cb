// Does the input limit? Images a second of cifar10 on two cores: batches that lie ready, stored images shuffled, and distorted ones; and photos. input [ROUNDS [STEPS]]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <belfry/belfry.h>
#include <belfry/frontends/data/distort.h>
#include <belfry/frontends/nn/nets/nets.h>

using namespace belfry;

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kBatchRows = 128, kRows = 10000;
constexpr int kWarm = 12;  // steps after which an input that takes time has its thread

std::shared_ptr<HostTensor> noise(Extents shape) {
  auto out = std::make_shared<HostTensor>(u8, std::move(shape));
  std::uint32_t x = 1;
  for (auto& b : out->data<std::uint8_t>()) b = static_cast<std::uint8_t>((x = x * 1664525u + 1013904223u) >> 24);
  return out;
}

HostTensor labels() {
  HostTensor out(i32, {kRows});
  for (int i = 0; auto& l : out.data<std::int32_t>()) l = i++ % 10;
  return out;
}

/// Steps a second, the first ones apart.
struct Watch {
  int steps = 0;
  Clock::time_point start = {}, end = {};
  void step() {
    if (++steps == kWarm) start = Clock::now();
    end = Clock::now();
  }
  double rate() const { return static_cast<double>((steps - kWarm) * kBatchRows) / std::chrono::duration<double>(end - start).count(); }
};

double resident_rate(Session& session, const NamedTensors& batch, int steps, const std::vector<std::string>& fetches) {
  Watch watch;
  for (int k = 0; k < steps; ++k) {
    session.step(batch, fetches);
    watch.step();
  }
  return watch.rate();
}

double fit_rate(Session& session, const DataSet& data, int steps) {
  Watch watch;
  fit(session, data, {.batch = kBatchRows, .steps = steps, .shuffle = 1, .last_batch = LastBatch::runs_on, .on_batch = [&](const Progress&) { watch.step(); }});
  return watch.rate();
}

void report(const std::string& name, std::vector<double> x, const char* unit) {
  std::sort(x.begin(), x.end());
  fmt::print("{:28} {:9.3f} {} ({:.3f} to {:.3f} over {} rounds)\n", name, x[x.size() / 2], unit, x.front(), x.back(), x.size());
}

/// Microseconds that one row takes on one thread.
double microseconds(const MadeColumn& column) {
  std::vector<std::byte> out(static_cast<std::size_t>(column.row.bytes()));
  constexpr int kTimes = 2000;
  const auto start = Clock::now();
  for (int i = 0; i < kTimes; ++i) column.make({0, i % 100}, out);
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kTimes;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7, steps = kWarm + (argc > 2 ? std::atoi(argv[2]) : 20);
  auto bytes = noise({kRows, 32, 32, 3});
  DataSet stored, distorted;
  stored.columns["label"] = distorted.columns["label"] = labels();
  stored.columns["image"] = converted(*noise({kRows, 24, 24, 3}), f32);
  distorted.made["image"] = distorted_column(bytes, cifar10_distortions(), {.standardised = true});
  auto library = standard_library();
  Session session(net_named("cifar10").build(library->ops), Towers{.devices = parse_devices("cpu:0,cpu:1"), .variables = cpu(0)}, {.library = library});
  const std::vector<std::string> fetches = fit_fetches(session);
  Batches batches(stored, kBatchRows);
  const NamedTensors batch = batches.next();
  std::vector<double> resident, from_memory, with_distortions, memory_ratio, ratio;
  resident_rate(session, batch, steps, fetches);
  for (int r = 0; r < rounds; ++r) {
    resident.push_back(resident_rate(session, batch, steps, fetches));
    with_distortions.push_back(fit_rate(session, distorted, steps));
    from_memory.push_back(fit_rate(session, stored, steps));
    const double again = resident_rate(session, batch, steps, fetches), beside = (resident.back() + again) / 2;
    resident.push_back(again);
    ratio.push_back(with_distortions.back() / beside);
    memory_ratio.push_back(from_memory.back() / beside);
  }
  fmt::print("cifar10, batch {}, towers on cpu:0 and cpu:1; each ratio is to the resident rounds before and after\n", kBatchRows);
  report("resident batch", resident, "img/s");
  report("stored images, shuffled", from_memory, "img/s");
  report("with distortions", with_distortions, "img/s");
  report("stored / resident", memory_ratio, "");
  report("distorted / resident", ratio, "");
  std::vector<double> small, large;
  const MadeColumn photo = distorted_column(noise({100, 224, 224, 3}), {.shear = 0.2, .zoom = 0.2, .flip = true}, {});
  for (int r = 0; r < rounds; ++r) small.push_back(microseconds(distorted.made.at("image"))), large.push_back(microseconds(photo));
  report("an image of 24 x 24", small, "us");
  report("sheared, of 224 x 224", large, "us");
}
