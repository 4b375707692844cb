#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/json/records.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

void print_graph_facts(const Graph& graph, const std::string& file) {
  auto names = [&](const std::vector<NodeId>& nodes) {
    std::vector<std::string> out;
    for (NodeId id : nodes) out.push_back(graph.node(id).name);
    return json_texts(out);
  };
  std::vector<std::string> outputs;
  for (ValueId v : graph.outputs) outputs.push_back(graph.name_of(v));
  std::cout << json_file({"\"graph\": " + json_text(printable(file)), "\"net\": " + json_text(graph.name), "\"inputs\": " + names(graph.inputs()), "\"variables\": " + names(graph.variables()), "\"outputs\": " + json_texts(outputs)});
}

}  // namespace

void add_convert_verb(CLI::App& app, const LibrarySource& library) {
  struct ConvertArguments {
    std::string source, out;
    bool expanded = false, json = false;
  };
  auto o = std::make_shared<ConvertArguments>();
  CLI::App* verb = app.add_subcommand("convert", "Write a net or graph as a graph file");
  verb->footer("Example: belfry convert mnist_cnn -o mnist_cnn.json");
  verb->add_option("source", o->source, "a net, a graph file or a plan file")->required()->check(offers_nets());
  verb->add_option("-o,--out", o->out, "the graph's file; standard output without it");
  verb->add_flag("--passes", o->expanded, "after the passes: gradients, slots and updates written out");
  verb->add_flag("--json", o->json, "with -o: what was written, for machines: graph, net, and names of inputs, variables and outputs");
  verb->callback([o, library] {
    if (o->json && o->out.empty()) throw WrongUse("--json says what was written, and without -o the graph, which is JSON itself, goes to standard output: give -o GRAPH.json too, or leave --json out");
    Source source = load_source(o->source, *library());
    Graph graph = o->expanded && !source.plan ? run_passes(training_passes(), *source.graph) : *source.graph;
    // The state is named from where the new file lies.
    std::string state = source.state.empty() ? "" : std::filesystem::proximate(source.state, std::filesystem::absolute(o->out).parent_path()).generic_string();
    std::string text = write_graph(graph, {}, state);
    if (o->out.empty()) std::cout << text;
    else {
      write_file(o->out, text);
      say(fmt::format("wrote {}\n", o->out));
    }
    if (o->json) print_graph_facts(graph, o->out);
  });
}

}  // namespace belfry
