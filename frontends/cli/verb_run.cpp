#include <CLI/CLI.hpp>

#include <iostream>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/optimizer_options_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/frontends/cli/predict_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/values.h>
#include <belfry/frontends/session/trace.h>
#include <belfry/frontends/state/safetensors.h>

namespace belfry {

namespace {

struct RunArguments {
  std::string source, feed, state, out, save_state, trace;
  std::int64_t steps = 0, batch = 0;
  bool no_update = false, quiet = false, json = false;
  std::vector<std::string> fetches;
  PlacementArguments placement;
};

void print_results(const std::map<std::string, HostTensor>& all, const RunArguments& o) {
  std::vector<std::string> outputs;
  for (const auto& [name, t] : all)
    if (o.json) outputs.push_back(fmt::format("{}: {}", json_text(name), json_of(t)));
    else std::cout << name << " = " << to_string(t) << "\n";
  if (o.json) std::cout << fmt::format("{{\"steps\": {}, \"outputs\": {{\n{}}}}}\n", o.steps, fmt::join(outputs, ",\n"));
}

void run(const RunArguments& o, const std::shared_ptr<const Library>& library) {
  if (!o.steps && (o.batch || o.no_update)) throw WrongUse("--batch and --no-update are of steps: give --steps too; without it the graph is run once, on all rows, without updates");
  be_quiet(o.quiet);
  refuse_unwritable({o.out, o.save_state, o.trace});
  Source source = load_source(o.source, *library);
  std::vector<std::string> read = files_read(o.source, o.placement, {o.feed, source.state});
  refuse_over("--save-state", o.save_state, read);
  read.push_back(o.state);  // what the steps make of it may go in its place
  for (const auto& [option, file] : {std::pair("--out", o.out), {"--trace", o.trace}}) refuse_over(option, file, read);
  refuse_ending(o.save_state, 2);
  refuse_broken(source, o.source, *library);
  Session session = make_session(source, o.placement, library);
  load_states(session, source, o.state);
  const std::vector<std::string> fetched = o.fetches.empty() ? session.default_fetches(o.steps && !o.no_update ? Mode::step : Mode::run) : o.fetches;
  refuse_ending(o.out, std::set(fetched.begin(), fetched.end()).size());
  std::map<std::string, HostTensor> feeds = o.feed.empty() ? std::map<std::string, HostTensor>{} : load_tensors(o.feed, &session.graph());
  say_unread(session.graph(), feeds, o.feed);
  for (NodeId id : session.graph().inputs())
    if (const auto feed = feeds.find(session.graph().node(id).name); feed != feeds.end()) refuse_shape(session.graph(), feed->first, feed->second.shape(), feed->second.type(), o.feed);
  session.set_trace(!o.trace.empty());
  Results last;
  if (o.steps == 0) {
    say_initial(session, source, o.state);
    last = session.run(feeds, o.fetches);
    if (!o.trace.empty() && !session.training_graph().updates.empty()) say("the trace is of an evaluation, without updates; --steps 1 traces the step that show --timeline and forecast stand beside\n");
    say_slow(session.last_program()->plan());
  } else {
    std::optional<std::int64_t> batch;
    if (std::int64_t said = batch_of(o.batch, source, o.placement)) batch = said;
    StepFeeds steps(session.graph(), feeds, o.steps, batch);
    const bool updates = !o.no_update && trains(session.training_graph());
    if (!updates && !o.no_update) say("nothing is trained: the graph minimises no loss, and its steps run without updates\n");
    for (std::int64_t k = 0; k < o.steps; ++k) {
      last = {};  // before the next are made
      last = !updates ? session.run(steps(k), o.fetches) : session.step(steps(k), o.fetches);
      if (!k) say_slow(session.last_program()->plan());
    }
  }
  print_results(last.all(), o);
  if (!o.out.empty()) save_tensors(o.out, last.all());
  if (!o.save_state.empty()) save_tensors(o.save_state, session.state());
  if (!o.trace.empty()) write_file(o.trace, chrome_trace(session.last_program()->bound(), session.trace(), session.gpu_readings()));
}

}  // namespace

void add_run_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<RunArguments>();
  CLI::App* verb = app.add_subcommand("run", "Run a graph or plan on a file of feeds");
  verb->footer("Example: belfry run two.json --feed batch.safetensors --fetch loss");
  verb->add_option("source", o->source, "a net, a graph file or a plan file")->required()->check(offers_nets());
  verb->add_option("--feed", o->feed, "a tensor per input: safetensors or npz, or npy for one that has the file's name")->check(is_file());
  verb->add_option("--state", o->state, "variables by name; what is missing is initialised from --seed")->check(is_file());
  verb->add_option("--steps", o->steps, "steps of training on rows k*B … (k+1)*B of the feeds; without it the graph is run once and nothing changes")->check(count());
  verb->add_option("--batch", o->batch, "rows of a step; by default the plan's or the placement file's, else the feeds' rows / steps")->check(count());
  verb->add_flag("--no-update", o->no_update, "run the steps without updates");
  verb->add_flag("--quiet", o->quiet, "results and errors alone: no words of the plan, nor of what is slow on purpose");
  verb->add_flag("--json", o->json, "all fetched values, for machines; steps is 0 of a graph that is run once");
  verb->add_option("--fetch", o->fetches, "values to fetch; by default outputs, losses and metrics")->delimiter(',')->type_name("NAMES");
  verb->add_option("--out", o->out, "the fetched values of the last step: *.safetensors, *.npz or, of one value, *.npy");
  verb->add_option("--save-state", o->save_state, "all variables afterwards: *.safetensors or *.npz");
  verb->add_option("--trace", o->trace, "a Chrome trace of the last step, with the use of GPUs over all of them");
  add_optimizer_options(*verb, o->placement);
  o->placement.add_to(*verb);
  verb->callback([o, library] { run(*o, library()); });
}

}  // namespace belfry
