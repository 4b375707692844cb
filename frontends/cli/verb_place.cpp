#include <CLI/CLI.hpp>

#include <iostream>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/cost_file.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/json/problem_file.h>

namespace belfry {

void add_place_verb(CLI::App& app, const LibrarySource& library) {
  struct PlaceArguments {
    std::string source, out;
    std::int64_t batch = 0;
    bool problem = false;
    std::vector<std::string> fetches;
    PlacementArguments placement;
  };
  auto o = std::make_shared<PlaceArguments>();
  CLI::App* verb = app.add_subcommand("place", "Make a plan of a graph, or derive a plan anew from its decisions");
  verb->footer("Example: belfry place mnist_cnn -o two.json --devices cpu:0,cpu:1 --batch 32 -O variables=cpu:0");
  verb->add_option("source", o->source, "a net, a graph file or a plan file")->required();
  verb->add_option("-o,--out", o->out, "the plan's file; standard output without it");
  verb->add_option("--batch", o->batch, "global rows of a step; by default the plan's or the placement file's, else 32")->check(count());
  verb->add_option("--fetch", o->fetches, "values to fetch; by default outputs, losses and metrics")->delimiter(',');
  verb->add_flag("--problem", o->problem, "write no plan, but what a placer of your own must know: nodes with their seconds and bytes, edges, devices; it answers with --placement");
  o->placement.add_to(*verb);
  verb->callback([o, source_of = library] {
    std::shared_ptr<const Library> library = source_of();
    o->placement.forecast = o->problem;
    Source source = load_source(o->source, *library);
    const std::int64_t said = batch_of(o->batch, source, o->placement), batch = said ? said : 32;
    if (!source.state.empty()) say(fmt::format("the state that {} names is not in the plan; give it to run: --state {}\n", o->source, source.state));
    Session session = make_session(source, o->placement, library, true);
    if (session.strategy().loops) {
      if (o->out.empty() || o->problem) throw WrongUse("what is trained by loops has two plans, a worker's and the servers': -o PLAN.json writes PLAN.worker.json and PLAN.server.json");
      say_loops(session, batch, o->fetches.empty() ? session.default_fetches(Mode::step) : o->fetches, o->out);
      return;
    }
    const PlacedGraph& plan = session.plan(batch, Mode::step, o->fetches);
    say(describe(plan, {.memory = true, .nodes = false}));
    const std::string text = o->problem ? write_problem(plan, o->placement.calibration.empty() ? CostTable{} : read_costs(read_file(o->placement.calibration), o->placement.calibration)) : write_plan(plan);
    if (o->out.empty()) std::cout << text;
    else {
      write_file(o->out, text);
      say(fmt::format("wrote {}\n", o->out));
    }
  });
}

}  // namespace belfry
