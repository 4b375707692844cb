#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/data/digits.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

void add_convert_verb(CLI::App& app, const LibrarySource& library) {
  struct ConvertArguments {
    std::string source, out;
    bool expanded = false;
  };
  auto o = std::make_shared<ConvertArguments>();
  CLI::App* verb = app.add_subcommand("convert", "Write a net or graph as a graph file");
  verb->footer("Example: belfry convert mnist_cnn -o mnist_cnn.json");
  verb->add_option("source", o->source, "a net, a graph file or a plan file")->required();
  verb->add_option("-o,--out", o->out, "the graph's file; standard output without it");
  verb->add_flag("--passes", o->expanded, "after the passes: gradients, slots and updates written out");
  verb->callback([o, library] {
    Source source = load_source(o->source, *library());
    Graph graph = o->expanded && !source.plan ? run_passes(training_passes(), *source.graph) : *source.graph;
    // The state is named from where the new file lies.
    std::string state = source.state.empty() ? "" : std::filesystem::proximate(source.state, std::filesystem::absolute(o->out).parent_path()).generic_string();
    std::string text = write_graph(graph, {}, state);
    if (o->out.empty()) std::cout << text;
    else write_file(o->out, text);
  });
}

void add_data_verb(CLI::App& app, const LibrarySource&) {
  struct ConvertArguments {
    std::string out;
    std::int64_t train = 12000, test = 2000;
    std::uint64_t seed = 1;
  };
  auto o = std::make_shared<ConvertArguments>();
  CLI::App* data = app.add_subcommand("data", "Data sets");
  data->footer("Example: belfry data digits --out digits");
  data->require_subcommand(0, 1);
  data->callback([data] {
    if (data->get_subcommands().empty()) throw WrongUse("data wants the name of a set: digits");
  });
  CLI::App* verb = data->add_subcommand("digits", "Draw handwriting-like digits as the four IDX files of MNIST");
  verb->footer("Example: belfry data digits --out digits");
  verb->add_option("--out", o->out, "a folder")->required();
  verb->add_option("--train", o->train, "training images")->check(whole(1, 1 << 30));
  verb->add_option("--test", o->test, "test images")->check(whole(1, 1 << 30));
  verb->add_option("--seed", o->seed, "of the drawing")->check(whole(0, UINT64_MAX));
  verb->callback([o] {
    draw_digits(o->out, o->train, o->test, o->seed);
    say(fmt::format("drew {} training and {} test digits into {}\n", o->train, o->test, o->out));
  });
}

}  // namespace belfry
