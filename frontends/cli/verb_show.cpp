#include <CLI/CLI.hpp>

#include <iostream>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/graph/text.h>

namespace belfry {

void add_show_verb(CLI::App& app, const LibrarySource& library) {
  struct ShowArguments {
    std::string source;
    bool memory = false;
  };
  auto o = std::make_shared<ShowArguments>();
  CLI::App* verb = app.add_subcommand("show", "A graph or plan as text");
  verb->footer("Example: belfry show two.json --memory");
  verb->add_option("source", o->source, "a net, a graph file or a plan file")->required();
  verb->add_flag("--memory", o->memory, "bytes per device and their waste");
  verb->callback([o, library] {
    Source source = load_source(o->source, *library());
    if (source.plan) std::cout << describe(*source.plan, {.memory = o->memory});
    else std::cout << to_text(*source.graph);
  });
}

}  // namespace belfry
