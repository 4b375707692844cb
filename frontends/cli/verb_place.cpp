#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/device_options_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/optimizer_options_internal.h>
#include <belfry/frontends/cli/partitioning_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/describe_forecast.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/json/cut_file.h>
#include <belfry/frontends/json/plan_facts.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/json/problem_file.h>
#include <belfry/frontends/json/records.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/placer/cut/cut.h>

namespace belfry {

namespace {

struct PlaceArguments {
  std::string source, out, problem;
  std::int64_t batch = 0;
  bool inference = false, json = false;
  std::vector<std::string> fetches;
  PlacementArguments placement;
};

constexpr const char *kOwn = "belfry", *kPartitioning = "dnn-partitioning";

/// With --json `facts` go to standard output, behind the file as `what` it is.
void put(const PlaceArguments& o, const std::string& text, const char* what, const std::vector<std::string>& facts) {
  if (o.out.empty()) std::cout << text;
  else {
    write_file(o.out, text);
    say(fmt::format("wrote {}\n", o.out));
  }
  if (!o.json) return;
  std::vector<std::string> entries = {fmt::format("\"{}\": {}", what, json_text(printable(o.out)))};
  entries.insert(entries.end(), facts.begin(), facts.end());
  std::cout << json_file(entries);
}

/// Whether the file is a cutting problem by itself.
bool is_partitioning(const std::string& text, const std::string& file) { return text.find("\"maxFPGAs\"") != text.npos && JsonDocument(text, file).root().find("maxFPGAs"); }

/// Answers a cutting problem: its best split, and on standard error what is known of it.
void solve(const PlaceArguments& o, const std::string& text) {
  CutProblem p = read_cut_problem(text, o.source);
  const PlacementArguments& a = o.placement;
  if (!o.problem.empty() || !a.strategy.empty() || !a.devices.empty() || !a.moves.empty() || !a.placement_file.empty() || !a.cluster_file.empty())
    throw WrongUse(fmt::format("{} is a cutting problem, which says its devices itself: it takes -o and -O objective=max-load or latency alone", o.source));
  for (const std::string& option : a.options) {
    if (!option.starts_with("objective=")) throw WrongUse(fmt::format("-O {}: a cutting problem has one option, objective", option));
    const std::string objective = option.substr(option.find('=') + 1);
    if (objective != "max-load" && objective != "latency")
      throw WrongUse(fmt::format("-O {}: of a cutting problem the objective is max-load or latency; leave it out for max-load", option));
    p.objective = parse_cut_objective(objective);
  }
  if (a.options.size() > 1) throw WrongUse(fmt::format("-O {}: the option objective is given twice; leave one out", a.options.back()));
  const Cut c = cut(p);
  say(fmt::format("{} {:.10g}, {}\n", to_string(p.objective), c.value, c.optimal() ? "which no split in one order of all devices beats" : fmt::format("and no split in one order of all devices has less than {:.10g}", c.bound)));
  const std::vector<double> loads = loads_of(p, c.device);
  std::vector<std::string> lines;
  for (std::size_t d = 0; d < loads.size(); ++d) {
    const std::string name = fmt::format("{} {}", p.kinds[static_cast<std::size_t>(p.kind_of(static_cast<int>(d)))].name, d);
    say(fmt::format("  {}: {:.6g}\n", name, loads[d]));
    lines.push_back(json_list({json_text(name), json_real(loads[d])}));
  }
  put(o, write_cut(p, c.device), "split", {"\"objective\": " + json_text(to_string(p.objective)), "\"value\": " + json_real(c.value), "\"bound\": " + json_real(c.bound), fmt::format("\"optimal\": {}", c.optimal()), "\"loads\": " + json_lines(lines)});
}

/// A placement goes before what the graph asks for: what it puts elsewhere is said.
void say_against_requests(const PlacedGraph& plan) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> moved;
  for (const PlanNode& n : plan.nodes) {
    if (n.inserted) continue;
    const std::vector<DeviceId> are = plan.cluster.ids(all_devices(plan, n));
    auto look = [&](NodeId id) {
      const Node& user = plan.graph->node(id);
      if (user.device && are != std::vector{*user.device}) moved.push_back(fmt::format("'{}' is on {}, not on {}", user.name, to_string(are), to_string(*user.device)));
    };
    if (n.members.empty() && n.user >= 0) look(n.user);
    for (const Member& m : n.members) look(m.node);
  }
  if (moved.empty()) return;
  const std::size_t more = moved.size() - std::min(kShown, moved.size());
  moved.resize(moved.size() - more);
  say(fmt::format("the placement goes before what the graph asks for: {}{}\n", fmt::join(moved, ", "), more ? fmt::format(", and {} more", more) : ""));
}

std::set<std::string> kernels_of(const PlanNode& n) {
  std::set<std::string> out;
  for (const Variant& v : n.by_class) out.insert(v.kernel);
  for (const Variant& v : n.by_group) out.insert(v.kernel);
  out.erase("");
  return out;
}

/// What a plan's file has that is no decision, and is lost where the plan is derived anew for the same rows and devices: kernels of nodes that stay
/// where they are, if the file holds and would run with them, and places of what is computed again.
void say_derived(const PlaceArguments& o, const Source& source, const PlacedGraph& plan) {
  if (!source.plan || o.batch || o.inference || !o.fetches.empty() || !o.placement.devices.empty()) return;
  std::map<std::string_view, const PlanNode*> given;
  for (const PlanNode& n : source.plan->nodes) given.emplace(n.name, &n);
  std::vector<std::string> kernels, repeats;
  for (const PlanNode& n : plan.nodes) {
    const auto at = given.find(n.name);
    if (at == given.end()) continue;
    const std::set<std::string> was = kernels_of(*at->second), is = kernels_of(n);
    if (was == is && !n.again) continue;
    const std::vector<DeviceId> there = source.plan->cluster.ids(all_devices(*source.plan, *at->second)), here = plan.cluster.ids(all_devices(plan, n));
    if (there != here && n.again && o.placement.moves.empty()) repeats.push_back(fmt::format("'{}' from {} to {}", n.name, to_string(there), to_string(here)));
    if (there == here && was != is) kernels.push_back(fmt::format("'{}': {} → {}", n.name, fmt::join(was, ", "), fmt::join(is, ", ")));
  }
  auto some = [](const std::vector<std::string>& all) {
    constexpr std::size_t kShown = 4;
    const std::size_t shown = std::min(kShown, all.size());
    return fmt::format("{}{}", fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), "; "), all.size() > shown ? fmt::format("; and {} more", all.size() - shown) : "");
  };
  if (!repeats.empty()) say(fmt::format("what is computed again goes where its node is: {}\n", some(repeats)));
  if (!kernels.empty() && verify(*source.plan).empty()) say(fmt::format("kernels are no decisions, and are chosen anew: {}; belfry run takes {} as it stands\n", some(kernels), o.source));
}

/// What moving nodes by hand does to a step.
void say_moved(const PlaceArguments& o, const Source& source, const std::shared_ptr<const Library>& library, std::int64_t batch, const PlacedGraph& moved, const CostTable& costs) {
  PlacementArguments a = o.placement;
  a.moves.clear();
  a.said = true;
  try {
    Session session = make_session(source, a, library, true);
    const Forecast before = forecast(session.plan(batch, o.inference ? Mode::infer : Mode::step, o.fetches), costs), after = forecast(moved, costs);
    say(fmt::format("by forecast{} a step takes {} with --move, and {} without\n", costs.empty() ? ", of costs that were not measured," : "", human_seconds(after.seconds), human_seconds(before.seconds)));
  } catch (const UserError&) {  // without the moves it may not fit, or links lead elsewhere
  }
}

void run_place(PlaceArguments& o, const std::shared_ptr<const Library>& library) {
  if (o.json && o.out.empty()) throw WrongUse("--json says what was made, and without -o that itself, which is JSON, goes to standard output: give -o PLAN.json too, or leave --json out");
  const std::optional<std::string> text = source_text(o.source);
  if (!o.out.empty()) refuse_unwritable({o.out});
  if (text && is_partitioning(*text, o.source)) return solve(o, *text);
  if (!o.problem.empty() && o.problem != kOwn && o.problem != kPartitioning) throw WrongUse(fmt::format("--problem={}: the formats are {} and {}", o.problem, kOwn, kPartitioning));
  o.placement.forecast = !o.problem.empty();
  if (o.inference) refuse_idle_optimizer(o.placement);
  Source source = load_source(o.source, text, *library);
  take_split(source, o.placement, o.batch, o.fetches, library);
  const std::int64_t said = batch_of(o.batch, source, o.placement), batch = said ? said : 32;
  if (!source.state.empty()) say(fmt::format("the state that {} names is not in the plan; give it to run: --state {}\n", o.source, source.state));
  Session session = make_session(source, o.placement, library, true);
  say_absent_gpus(source, o.placement, session);
  if (session.strategy().loops && !o.inference) {
    if (o.out.empty() || !o.problem.empty()) throw WrongUse("what is trained by loops has two plans, a worker's and the servers': -o PLAN.json writes PLAN.worker.json and PLAN.server.json");
    std::vector<std::string> plans;
    say_loops(session, batch, o.fetches.empty() ? session.default_fetches(Mode::step) : o.fetches, o.out, &o.placement, o.json ? &plans : nullptr);
    if (o.json) std::cout << json_file(plans);
    return;
  }
  const PlacedGraph& plan = session.plan(batch, o.inference ? Mode::infer : Mode::step, o.fetches);
  say(describe(plan, {.memory = true, .nodes = false}));
  if (o.problem.empty()) say_what_stops(plan, o.placement, session);
  if (!o.placement.placement_file.empty() || !o.placement.rules.empty()) say_against_requests(plan);
  say_slow(plan, true, false);
  say_derived(o, source, plan);
  const CostTable& costs = costs_of(session);
  put(o, o.problem.empty() ? write_plan(plan) : o.problem == kOwn ? write_problem(plan, costs) : write_cut_problem(partitioning_of(plan, costs).problem), o.problem.empty() ? "plan" : "problem",
      o.json ? plan_facts(plan) : std::vector<std::string>());
  if (o.problem.empty() && !o.placement.moves.empty()) say_moved(o, source, library, batch, plan, costs);
}

}  // namespace

void add_place_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<PlaceArguments>();
  CLI::App* verb = app.add_subcommand("place", "Make a plan of a graph, derive a plan anew from its decisions, or answer a cutting problem");
  verb->footer("Example: belfry place mnist_cnn -o two.json --devices cpu:0,cpu:1 --batch 32 -O variables=cpu:0\nExample: belfry place mnist_cnn -o serve.json --inference --batch 8");
  verb->add_option("source", o->source, "a net, a graph file, a plan file, a run's folder, or a problem of dnn-partitioning")->required()->check(offers_nets());
  verb->add_option("-o,--out", o->out, "the plan's file; standard output without it");
  verb->add_option("--batch", o->batch, "global rows of a step; by default the plan's or the placement file's, else 32")->check(count());
  verb->add_option("--fetch", o->fetches, "values to fetch; by default outputs, losses and metrics, for inference the outputs")->delimiter(',')->type_name("NAMES");
  verb->add_flag("--inference", o->inference, "the plan that serves: no labels, no dropout, running statistics, no optimizer; belfry predict runs it as it stands");
  verb->add_flag("--json", o->json, "with -o: what was made, for machines: the file, strategy, batch, towers, arithmetic hash, bytes of devices and links; of a cutting problem the value and its bound");
  verb->add_flag("--problem{belfry}", o->problem,
                 "write no plan, but what a placer of your own must know: nodes with their seconds and bytes, edges, devices; it answers with --placement. --problem=dnn-partitioning writes that format, which place answers too")->check(offers({kOwn, kPartitioning}));
  add_optimizer_options(*verb, o->placement);
  o->placement.add_to(*verb, false);
  verb->callback([o, source_of = library] { run_place(*o, source_of()); });
}

}  // namespace belfry
