#include <CLI/CLI.hpp>

#include <iostream>
#include <list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/device_options_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/draw/describe_forecast.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/cost_file.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/session/calibration.h>
#include <belfry/frontends/session/engines.h>

namespace belfry {

namespace {

struct BenchArguments {
  std::vector<std::string> nets;
  std::vector<std::int64_t> batches = {32};
  std::vector<int> towers;
  std::vector<std::string> precisions = {""};  ///< empty: the graph's own
  std::int64_t rounds = 20;
  bool calibrate = false, json = false, inference = false, nondeterministic = false;
  Mode mode() const { return inference ? Mode::infer : Mode::step; }
  std::string out, devices;
};

/// A net with a batch and towers, ready to step.
struct Case {
  std::string name;
  Session session;
  std::map<std::string, HostTensor> feeds;
  std::vector<double> seconds = {};
};

/// Towers over the devices that are named, or over the cores.
Strategy strategy_of(const BenchArguments& o, int towers, int cores) {
  std::vector<DeviceId> devices = o.devices.empty() ? std::vector<DeviceId>{} : parse_devices(o.devices);
  if (devices.size() == 1) return to_strategy(Single{.device = devices[0], .towers = towers});
  if (!devices.empty()) return to_strategy(Mirrored{.devices = devices, .towers = towers});
  for (int d = 0; d < std::min(towers, cores); ++d) devices.push_back(cpu(d));
  return towers == 1 ? to_strategy(Single{}) : to_strategy(Towers{.devices = devices, .towers = towers});
}

std::list<Case> cases_of(const BenchArguments& o, const std::shared_ptr<const Library>& library, int cores, const std::shared_ptr<const CostTable>& costs = {}) {
  std::list<Case> out;
  for (const std::string& net : o.nets) {
    Source source = load_source(net, *library);
    if (source.plan) throw WrongUse(fmt::format("{} is a plan: bench places nets and graphs itself", net));
    for (const std::string& precision : o.precisions)
      for (std::int64_t batch : o.batches)
        for (int towers : o.towers) {
          Graph graph = with_precision(*source.graph, precision);
          const std::string precise = graph.precision == f32 ? "" : fmt::format(" in {}", name_of(graph.precision)), lax = o.nondeterministic ? ", nondeterministic" : "";
          Session session(std::move(graph), strategy_of(o, towers, cores), {.library = library, .fast_nondeterministic = o.nondeterministic, .costs = costs});
          auto feeds = synthetic_feeds(session.graph(), batch);
          out.push_back({fmt::format("{}{} batch {}, {} tower{}{}", net, precise, batch, towers, towers == 1 ? "" : "s", lax), std::move(session), std::move(feeds)});
        }
  }
  return out;
}

void run_bench(BenchArguments& o, const std::shared_ptr<const Library>& library) {
  if (o.calibrate != !o.out.empty()) throw WrongUse("--calibrate and -o belong together: the table that is measured goes to a file");
  if (o.nondeterministic && o.devices.find("gpu:") == o.devices.npos) throw WrongUse("--fast-nondeterministic does nothing here: no device is a GPU");
  refuse_unwritable({o.out});
  for (const std::string& net : o.nets) refuse_over("-o", o.out, files_read(net, {}));
  const HostFacts host = host_facts();
  if (o.towers.empty() && !o.devices.empty()) o.towers = {static_cast<int>(parse_devices(o.devices).size())};
  if (o.towers.empty()) o.towers = host.cores > 1 ? std::vector<int>{1, 2} : std::vector<int>{1};
  std::list<Case> cases = cases_of(o, library, host.cores);
  const auto engines = std::make_shared<CostTable>();
  if (o.calibrate && !o.devices.empty()) {
    for (Case& c : cases) {
      timed_step(c.session, c.feeds, {}, o.mode());
      engines->engines.merge(time_engines(*c.session.last_program()));
    }
    if (!engines->engines.empty()) cases = cases_of(o, library, host.cores, engines);  // what is measured runs on the engines that the table names
  }
  Calibration calibration;
  // Rounds over all cases in turn, so that what slows the machine for a while slows them alike.
  for (std::int64_t round = -2; round < o.rounds; ++round)
    for (Case& c : cases) measure_round(c.session, c.feeds, round, c.seconds, o.calibrate ? &calibration : nullptr, o.mode());
  std::vector<std::string> unquiet;
  for (const Case& c : cases) {
    const MeasuredSeconds s = spread_of(c.seconds);
    if (disturbed(s)) unquiet.push_back(c.name);
    if (o.json) std::cout << fmt::format("{{\"case\": {}, \"seconds\": {}, \"quieter_half\": {}, \"a_tenth_above\": {}}}\n",
                                         json_text(c.name), json_real(s.median), json_real(s.quiet), json_real(s.high));
    else std::cout << fmt::format("{:<48} {:>9} a {} (the quieter half {}, a tenth above {})\n", c.name, human_seconds(s.median), o.inference ? "batch served" : "step", human_seconds(s.quiet), human_seconds(s.high));
  }
  if (!unquiet.empty())
    say(fmt::format("the machine was busy meanwhile, or too few --rounds were made: of {} of {} cases a tenth of the steps took half as long again as the quieter half, or more ({}); what was measured may be too long\n",
                    unquiet.size(), cases.size(), fmt::join(unquiet, "; ")));
  if (!o.calibrate) return;
  CostTable table = calibration.table(machine_in_words());
  table.engines = engines->engines;
  write_file(o.out, write_costs(table));
  say(fmt::format("wrote {}: {} kernels, {} between two launches, {} from thread to thread, {} to one that sleeps, {} of a step beside its launches, {:.1f} GB/s moved by one thread\n", o.out, table.kernels.size(), human_seconds(table.dispatch), human_seconds(table.handoff),
                  human_seconds(table.wake), human_seconds(table.step), table.memmove / 1e9));
}

}  // namespace

void add_bench_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<BenchArguments>();
  CLI::App* verb = app.add_subcommand("bench", "Step times of nets here; with --calibrate what every kernel of them costs, for forecasts");
  verb->footer("Example: belfry bench mnist_cnn cifar10 --batch 16,64 --calibrate -o here.json");
  verb->add_option("nets", o->nets, "nets, graph files or run folders")->required()->check(offers_nets());
  verb->add_option("--batch", o->batches, "global rows of a step; several give forecasts something to lie between; by default " + std::to_string(o->batches[0]))->delimiter(',')->check(count());
  verb->add_option("--precision", o->precisions, "f32, tf32, bf16 or f16, or several of them; by default as the graph says")->delimiter(',')->check(one_of({"f32", "tf32", "bf16", "f16"}));
  verb->add_option("--towers", o->towers, "by default 1,2 where there are two cores")->delimiter(',')->check(whole(1, 4096));
  verb->add_option("--devices", o->devices, "gpu:0, or several; by default cores of the host. With --calibrate, engines of libraries are timed there too")
      ->check(is_device_list())
      ->check(offers_list({"cpu:0", "gpu:0", "sim:0-1"}));
  verb->add_option("--rounds", o->rounds, "steps of each, all in turn; the table keeps the quieter half of them; by default " + std::to_string(o->rounds))->check(whole(1, 1 << 20));
  verb->add_flag("--calibrate", o->calibrate, "trace a second step in each round, and write what every launch takes");
  verb->add_flag("--inference", o->inference, "batches that are served, in place of steps of training");
  verb->add_flag("--fast-nondeterministic", o->nondeterministic, "kernels of GPUs may be chosen whose bits may differ from run to run");
  verb->add_flag("--json", o->json, "a line for each, for machines");
  verb->add_option("-o,--out", o->out, "the table's file");
  verb->callback([o, library] { run_bench(*o, library()); });
}

}  // namespace belfry
