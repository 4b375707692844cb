#include <CLI/CLI.hpp>

#include <iostream>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/device_options_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/optimizer_options_internal.h>
#include <belfry/frontends/cli/partitioning_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/draw/describe_forecast.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/forecast_file.h>
#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/json/values.h>
#include <belfry/frontends/session/calibration.h>
#include <belfry/graph/plan/over_memory.h>

namespace belfry {

namespace {

struct ForecastArguments {
  std::string source, trace;
  std::int64_t batch = 0, measure = 0;
  bool json = false, jsonl = false, time_only = false, launches = false, inference = false;
  Mode mode() const { return inference ? Mode::infer : Mode::step; }
  std::vector<std::string> fetches;
  PlacementArguments placement;
};

void measure(ForecastArguments& o, const Source& source, const std::shared_ptr<const Library>& library, std::int64_t batch, const PlacedGraph& plan, const Forecast& f) {
  o.placement.forecast = false;
  o.placement.said = true;
  o.placement.calibration.clear();  // what runs needs none
  Session session = make_session(source, o.placement, library, false);
  const auto feeds = synthetic_feeds(session.graph(), batch);
  std::vector<double> seconds;
  for (int warm = 0; warm < 3; ++warm) timed_step(session, feeds, o.fetches, o.mode());
  for (std::int64_t k = 0; k < o.measure; ++k) seconds.push_back(timed_step(session, feeds, o.fetches, o.mode()));
  const MeasuredSeconds spread = spread_of(seconds);
  std::cout << describe_beside(plan, f, {spread.quiet, {}});
  std::cout << fmt::format("of {} steps that is the mean of the quieter half; half took less than {}, nine tenths less than {}\n", o.measure, human_seconds(spread.median), human_seconds(spread.high));
}

/// A line for each strategy that a choice looked at.
std::vector<std::string> candidate_lines(const std::vector<Candidate>& candidates) {
  std::vector<std::string> out;
  for (const Candidate& c : candidates) {
    LineWriter line;
    line.add("name", json_text(c.strategy.name));
    line.add("options", json_text(c.strategy.options));
    if (c.refused.empty()) line.add(c.bound ? "at_least" : "seconds", json_real(c.seconds));
    if (c.peak) line.add("peak", std::to_string(c.peak)), line.add("fullest", json_text(c.fullest));
    if (!c.refused.empty()) line.add("refused", json_text(c.refused));
    out.push_back(line.text());
  }
  return out;
}

/// A placement a line, in order.
void score_lines(Session& session, std::int64_t batch, const ForecastArguments& o, CostTable costs) {
  PlacementScorer scorer = session.scorer(batch, std::move(costs), o.fetches, {o.placement.towers, o.placement.threads, o.batch, o.time_only}, o.mode());
  std::string line;
  for (std::int64_t number = 1; std::getline(std::cin, line); ++number) std::cout << scorer.line(line, number) << std::endl;  // a search waits for each
}

void run_forecast(ForecastArguments& o, const std::shared_ptr<const Library>& library) {
  if (o.launches && !o.json) throw WrongUse("--launches adds to what --json writes: give --json too");
  if (o.time_only && !o.jsonl) throw WrongUse("--time-only is of scores: give --jsonl too");
  if (o.json && (o.measure || !o.trace.empty())) throw WrongUse("--json writes the forecast alone, without what was measured: leave --measure and --trace out");
  if (o.jsonl && (o.json || o.measure || !o.trace.empty() || !o.placement.placement_file.empty()))
    throw WrongUse("--jsonl scores the placements on standard input alone: leave --json, --measure, --trace and --placement out");
  if (o.placement.no_cuda_graph && !o.measure) throw WrongUse("--no-cuda-graph is of runs: give --measure too");
  if (o.inference) refuse_idle_optimizer(o.placement);
  Source source = load_source(o.source, *library);
  take_split(source, o.placement, o.batch, o.fetches, library);
  const std::int64_t said = batch_of(o.batch, source, o.placement), batch = said ? said : 32;
  o.placement.forecast = true;
  Session session = make_session(source, o.placement, library);
  say_absent_gpus(source, o.placement, session);
  const CostTable& costs = costs_of(session);
  if (o.jsonl) return score_lines(session, batch, o, costs);
  const PlacedGraph& plan = session.plan(batch, o.mode(), o.fetches);
  const Forecast f = forecast(plan, costs);
  const std::vector<std::string> does_not_fit = over_memory(plan);
  if (o.json) {
    std::cout << write_forecast(plan, f, o.launches, candidate_lines(session.candidates()));
    for (const std::string& over : does_not_fit) say(fmt::format("does not fit: {}\n", over));
    if (!does_not_fit.empty()) throw CLI::RuntimeError(1);
    return;
  }
  std::cout << describe(plan, f);
  say_slow(plan, true, false);
  for (const std::string& over : does_not_fit) std::cout << "does not fit: " << over << "\n";
  if (!o.trace.empty()) {
    std::vector<double> measured = read_trace(read_file(o.trace), o.trace, plan, f);
    const double whole = measured.back();
    measured.pop_back();
    std::cout << describe_beside(plan, f, {whole, measured});
  }
  if (!does_not_fit.empty()) {
    std::cout << session.what_would_fit(batch, o.mode(), o.fetches) << "\n";
    throw CLI::RuntimeError(1);
  }
  if (o.measure) measure(o, source, library, batch, plan, f);
}

}  // namespace

void add_forecast_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<ForecastArguments>();
  CLI::App* verb = app.add_subcommand("forecast", "How long a step will take, and why: before it runs, also on machines that are not here. Exit 1 where it does not fit");
  verb->footer("Example: belfry forecast resnet50 --cluster p100x8 --batch 512 --strategy mirrored\nExample: belfry forecast resnet50 --cluster h100x8 --devices gpu:0 --batch 8 --inference");
  verb->add_option("source", o->source, "a net, a graph file, a plan file or a run's folder")->required()->check(offers_nets());
  verb->add_option("--batch", o->batch, "global rows of a step; by default the plan's or the placement file's, else 32")->check(count());
  verb->add_option("--fetch", o->fetches, "values to fetch; by default outputs, losses and metrics, for inference the outputs")->delimiter(',')->type_name("NAMES");
  verb->add_flag("--inference", o->inference, "of a batch that is served, not of a step of training: no labels, no dropout, running statistics");
  verb->add_option("--trace", o->trace, "a trace that belfry run wrote: measured beside forecast, node by node")->check(is_file());
  verb->add_option("--measure", o->measure, "run so many steps here on made-up feeds: measured beside forecast")->type_name("STEPS")->check(whole(1, 1 << 20));
  verb->add_flag("--json", o->json, "for machines; of --strategy auto with the candidates");
  verb->add_flag("--jsonl", o->jsonl,
                 "score placements, for searches: on standard input a line each, a placement file (as --placement takes it) or a list of the devices' numbers in the order of "
                 "place --problem, with the strategy's towers (--devices puts none in place of those that a line names; nodes that --move names stay where it says, and a file's rule for such a node alone is an error); "
                 "on standard output step_seconds and peak, or error");
  verb->add_flag("--time-only", o->time_only, "with --jsonl: step_seconds alone, whether it fits or not, in two thirds of the time");
  verb->add_flag("--launches", o->launches, "with --json: begin and end of every launch");
  add_optimizer_options(*verb, o->placement);
  o->placement.add_to(*verb);
  verb->callback([o, library] { run_forecast(*o, library()); });
}

}  // namespace belfry
