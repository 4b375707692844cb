#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/ops_text_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/dot.h>
#include <belfry/frontends/draw/picture.h>
#include <belfry/frontends/draw/timeline.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/cost_file.h>
#include <belfry/frontends/json/forecast_file.h>
#include <belfry/frontends/json/plan_facts.h>
#include <belfry/frontends/json/records.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/gpus.h>
#include <belfry/frontends/train/run_folder.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/graph/text.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

struct ShowArguments {
  std::string source, svg, html, dot, beside, calibration, trace, op;
  bool memory = false, timeline = false, inference = false, json = false, nets = false;
  bool draws() const { return !svg.empty() || !html.empty() || !dot.empty(); }
  bool pictures() const { return !svg.empty() || !html.empty(); }
};

void refuse_idle(const ShowArguments& o) {
  if (!o.beside.empty() && !o.pictures()) throw WrongUse("--beside outlines what moved in --svg or --html: give one of them too");
  if (!o.calibration.empty() && !o.pictures() && !o.timeline) throw WrongUse("--calibration is of the times in --svg, --html and --timeline: give one of them too");
  if (!o.trace.empty() && !o.timeline) throw WrongUse("--trace gives --timeline its times: give that too");
  if (o.json && o.draws()) throw WrongUse("--json stands in the place of the text, which --svg, --html and --dot leave out: give it without them");
  if (o.memory && (o.draws() || o.timeline)) throw WrongUse("--memory stands in the place of a plan's text, which --svg, --html, --dot and --timeline leave out");
}

void write(const std::string& file, const std::string& text) {
  write_file(file, text);
  say(fmt::format("wrote {}, {}\n", file, human_bytes(static_cast<std::int64_t>(text.size()))));
}

void print(const std::string& text) { std::cout << text; }

/// As a session makes it for its outputs, or where it has none for its metrics.
Graph serving_graph(const Graph& graph) {
  std::vector<std::string> outputs;
  for (ValueId v : graph.outputs) outputs.push_back(graph.name_of(v));
  return for_serving(graph, outputs);
}

void draw_graph(const ShowArguments& o, const Graph& graph) {
  if (o.timeline || !o.beside.empty()) throw UserError(fmt::format("{} is no plan, and only plans have a timeline and places to compare; make one with belfry place", o.source));
  if (!o.calibration.empty()) throw WrongUse(fmt::format("--calibration is of the times of plans, and {0} is none: belfry place {0} -o plan.json makes one", o.source));
  if (!o.svg.empty()) write(o.svg, draw_svg(graph));
  if (!o.html.empty()) write(o.html, draw_html(graph));
  if (!o.dot.empty()) write(o.dot, draw_dot(graph));
}

/// What is made of a plan; one that does not hold is shown as far as it goes, and then says so.
template <class Make>
auto of_plan(const std::string& file, const PlacedGraph& plan, Make make) {
  try {
    return make();
  } catch (const UserError&) {
    refuse_objections(verify(plan), file);
    throw;
  }
}

void draw_plan(const ShowArguments& o, const PlacedGraph& plan, const Library& library) {
  Source before;
  if (!o.beside.empty()) {
    before = load_source(o.beside, library);
    if (!before.plan) throw UserError(fmt::format("{} is no plan; make one with belfry place", o.beside));
    say_unlike(*before.plan, o.beside, plan, o.source);
  }
  if (!o.dot.empty()) write(o.dot, draw_dot(plan));
  if (!o.pictures() && !o.timeline) return;
  refuse_unwritable({o.svg, o.html});
  const CostTable costs = o.calibration.empty() ? CostTable{} : read_costs(read_file(o.calibration), o.calibration);
  std::optional<Forecast> f;
  std::string why;  // it has no times
  try {
    f = forecast(plan, costs);
  } catch (const UserError& e) {
    if (o.timeline || !o.calibration.empty()) {
      refuse_objections(verify(plan), o.source);
      throw;
    }
    why = e.what();
  }
  const PictureOptions options{f ? &*f : nullptr, before.plan.get()};
  if (!o.svg.empty()) write(o.svg, of_plan(o.source, plan, [&] { return draw_svg(plan, options); }));
  if (!o.html.empty()) write(o.html, of_plan(o.source, plan, [&] { return draw_html(plan, options); }));
  if (!why.empty()) say(fmt::format("the picture has no times: {}\n", why));
  if (!o.timeline) return;
  if (!o.trace.empty()) f = as_measured(BoundPlan(plan), *f, read_trace_times(read_file(o.trace), o.trace, plan, *f));
  std::cout << (o.json ? write_timeline(plan, *f) : describe_timeline(plan, *f));
}

/// In the place of the text; of a graph it is the graph's file.
std::string facts_text(const ShowArguments& o, const Source& source) {
  if (!source.plan) return write_graph(*source.graph);
  if (o.memory) return json_file({"\"devices\": " + json_lines(device_facts(*source.plan))});
  std::vector<std::string> entries = plan_facts(*source.plan);
  entries.push_back("\"nodes\": " + json_lines(node_facts(*source.plan)));
  return json_file(entries);
}

/// A run's timeline is that of the step that it traced at its end.
void take_from_run(ShowArguments& o) {
  const std::filesystem::path run = o.source;
  std::error_code error;
  if (!std::filesystem::exists(run / "plan.json", error)) throw UserError(fmt::format("{}: has no plan.json, and only plans have a timeline: its training has not ended, or was by loops", o.source));
  o.source = (run / "plan.json").string();
  if (o.trace.empty() && std::filesystem::exists(run / "trace.json", error)) {
    o.trace = (run / "trace.json").string();
    say(fmt::format("measured: the step of {}; belfry show {} --timeline draws the forecast\n", o.trace, o.source));
  }
}

/// With the kernels of GPUs, which need no driver to be listed.
void show_ops(const ShowArguments& o, std::shared_ptr<const Library> library) {
  if (o.draws() || o.timeline || o.memory || o.inference) throw WrongUse("--ops lists what graphs are made of: give it alone");
  if (!o.source.empty()) throw WrongUse(fmt::format("--ops lists what graphs are made of and looks at none: leave {} out", o.source));
  library = with_gpu_kernels(library, {DeviceId{0, "gpu", 0, -1}}, {}, {});
  if (!library->kernels.contains("gpu")) say(fmt::format("without the kernels of GPUs: {}\n", why_no_gpu_kernels()));
  const OpDef* op = o.op.empty() ? nullptr : made_of_options([&] { return &library->ops->at(o.op); });
  if (o.json) std::cout << (op ? op_json(*op, library->kernels) + "\n" : ops_json(*library->ops, library->kernels));
  else std::cout << (op ? op_text(*op, library->kernels) : ops_text(*library->ops, library->kernels));
}

/// The nets that go by name.
void show_nets(const ShowArguments& o) {
  if (o.draws() || o.timeline || o.memory || o.inference || !o.source.empty()) throw WrongUse("--nets lists the nets that go by name: give it alone");
  std::vector<std::string> lines;
  for (const NetDef& n : standard_nets()) {
    std::vector<std::string> settings;
    LineWriter line, numbers;
    for (const auto& [name, value] : n.settings) settings.push_back(fmt::format("{}={}", name, value)), numbers.add(name, json_real(value));
    line.add("net", json_text(n.name));
    line.add("help", json_text(n.help));
    line.add("settings", numbers.text());
    lines.push_back(o.json ? line.text() : fmt::format("{:<19}  {}{}\n", n.name, n.help, settings.empty() ? "" : fmt::format("; {}", fmt::join(settings, ", "))));
  }
  if (o.json) std::cout << json_lines(lines) << "\n";
  else std::cout << fmt::format("{}{} nets; settings stand behind the name, as in mobilenet_v2:alpha=0.35,image=96\n", fmt::join(lines, ""), lines.size());
}

}  // namespace

void add_show_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<ShowArguments>();
  CLI::App* verb = app.add_subcommand("show", "A graph or plan as text, as a picture, as a page, as a timeline");
  verb->footer("Example: belfry show two.json --memory\nExample: belfry show two.json --html two.html --beside one.json\nExample: belfry show --ops conv2d\nExample: belfry show --nets");
  verb->add_option("source", o->source, "a net, a graph file, a plan file or a run's folder; with --timeline the run's plan.json and trace.json")->check(offers_nets());
  CLI::Option* ops = verb->add_option("--ops", o->op, "what graphs are made of: all ops, or one with its attributes, gradient and kernels")->expected(0, 1)->type_name("[NAME]");
  verb->add_flag("--nets", o->nets, "the nets that go by name, with their settings");
  verb->add_flag("--memory", o->memory, "of a plan the bytes per device and their waste, in the place of all else");
  verb->add_flag("--json", o->json, "the same for machines: of a plan facts, bytes, links and nodes, of a graph its file, of --timeline every launch, of --ops the ops, of --nets the nets");
  verb->add_flag("--inference", o->inference, "a graph as it serves: no labels, no dropout, running statistics");
  verb->add_option("--svg", o->svg, "write a picture: what sits where, what crosses, how full, how long")->type_name("FILE");
  verb->add_option("--html", o->html, "write a page with the picture, facts on hover, search, layers that open")->type_name("FILE");
  verb->add_option("--dot", o->dot, "write it in Graphviz's language: dot -Tpdf FILE")->type_name("FILE");
  verb->add_option("--beside", o->beside, "outline what sits elsewhere than in this plan")->type_name("PLAN")->check(is_file());
  verb->add_flag("--timeline", o->timeline, "the forecast step, a line per stream");
  verb->add_option("--trace", o->trace, "of --timeline: the step that belfry run --trace wrote, in place of the forecast")->check(is_file());
  verb->add_option("--calibration", o->calibration, "what was measured on this machine: belfry bench --calibrate writes it")->check(is_file());
  verb->callback([o, ops, source_of = library] {
    refuse_idle(*o);
    if (ops->count()) return show_ops(*o, source_of());
    if (o->nets) return show_nets(*o);
    if (o->source.empty()) throw WrongUse("show wants a net, a graph file or a plan file; or --ops or --nets");
    const std::vector<std::string> read = files_read(o->source, {}, {o->beside, o->calibration, o->trace});
    for (const auto& [option, file] : {std::pair("--svg", o->svg), {"--html", o->html}, {"--dot", o->dot}}) refuse_over(option, file, read);
    if (o->timeline && is_run_folder(o->source)) take_from_run(*o);
    std::shared_ptr<const Library> library = source_of();
    Source source = load_source(o->source, *library);
    if (o->inference && source.plan) throw WrongUse(fmt::format("{} is a plan, and shows what it is made for: belfry place {} --inference -o PLAN2 makes the one that serves", o->source, o->source));
    if (o->memory && !source.plan)
      throw WrongUse(fmt::format("--memory is of plans, and {0} is none: belfry place {0}{1} -o plan.json makes one, of which belfry show plan.json --memory says it; belfry forecast {0}{1} says it at once", o->source, o->inference ? " --inference" : ""));
    if (o->inference) source.graph = std::make_shared<const Graph>(serving_graph(*source.graph));
    if (!source.plan) return o->draws() || o->timeline ? draw_graph(*o, *source.graph) : print(o->json ? facts_text(*o, source) : to_text(*source.graph));
    if (o->draws() || o->timeline) return draw_plan(*o, *source.plan, *library);
    print(of_plan(o->source, *source.plan, [&] { return o->json ? facts_text(*o, source) : o->memory ? describe_memory(*source.plan) : describe(*source.plan); }));
  });
}

}  // namespace belfry
