// Predicted against measured step times, interleaved in one process: whole nets with one and two towers, at batches that were
// calibrated and at one that never was. Both sides are of the quieter half of the steps. forecast [ROUNDS]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <list>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/calibration.h>
#include <belfry/graph/plan/forecast.h>

using namespace belfry;

namespace {

constexpr const char* kNets[] = {"mnist_cnn", "cifar10", "mobilenet_v2:alpha=0.35,image=96", "transformer"};
constexpr std::int64_t kCalibrated[] = {16, 64}, kUnseen[] = {32};

struct Case {
  std::string net;
  int towers;
  std::int64_t batch;
  bool calibrated;
  Session session;
  std::map<std::string, HostTensor> feeds;
  std::vector<double> seconds = {};
};

void add_case(std::list<Case>& out, const std::shared_ptr<const Library>& library, const std::string& what, int towers, std::int64_t batch, bool calibrated) {
  const std::string name = what.substr(0, what.find(':'));
  Settings settings = name == what ? Settings{} : Settings{{"alpha", 0.35}, {"image", 96}};
  Strategy s = towers == 1 ? to_strategy(Single{}) : to_strategy(Towers{.devices = parse_devices("cpu:0,cpu:1"), .towers = towers});
  Session session(net_named(name).build(library->ops, settings), s, {.library = library});
  auto feeds = synthetic_feeds(session.graph(), batch);
  out.push_back({name, towers, batch, calibrated, std::move(session), std::move(feeds)});
}

double median_of(std::vector<double> errors) { return spread_of(std::move(errors)).median; }

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  auto library = standard_library();
  std::list<Case> cases;
  for (const char* net : kNets)
    for (int towers : {1, 2}) {
      for (std::int64_t batch : kCalibrated) add_case(cases, library, net, towers, batch, true);
      for (std::int64_t batch : kUnseen) add_case(cases, library, net, towers, batch, false);
    }
  Calibration calibration;
  for (int round = -2; round < rounds; ++round)
    for (Case& c : cases) measure_round(c.session, c.feeds, round, c.seconds, c.calibrated ? &calibration : nullptr);
  const CostTable table = calibration.table("here");
  std::vector<double> seen, unseen;
  std::printf("%-14s %6s %5s %10s | ms: %9s %9s %9s %9s | %9s %7s\n", "net", "towers", "batch", "", "tenth", "quiet", "median", "9 tenths", "forecast", "error");
  for (Case& c : cases) {
    const MeasuredSeconds m = spread_of(c.seconds);
    const double predicted = forecast(c.session.plan(c.batch), table).seconds, error = predicted / m.quiet - 1;
    (c.calibrated ? seen : unseen).push_back(std::abs(error));
    std::printf("%-14s %6d %5ld %10s | %3s %9.3f %9.3f %9.3f %9.3f | %9.3f %+6.1f%%\n", c.net.c_str(), c.towers, static_cast<long>(c.batch), c.calibrated ? "calibrated" : "unseen", "",
                m.low * 1e3, m.quiet * 1e3, m.median * 1e3, m.high * 1e3, predicted * 1e3, 100 * error);
  }
  std::printf("median error: %.1f %% at calibrated batches, %.1f %% at others; a launch to the next %.0f ns, thread to thread %.0f ns, to one that sleeps %.0f ns, beside a step's launches %.1f us\n",
              100 * median_of(seen), 100 * median_of(unseen),
              table.dispatch * 1e9, table.handoff * 1e9, table.wake * 1e9, table.step * 1e6);
}
