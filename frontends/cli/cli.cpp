#include <belfry/frontends/cli/cli.h>

#include <CLI/CLI.hpp>
#include <dnnl_version.h>
#include <fmt/format.h>

#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/graph/error.h>

#include "build_facts.h"

namespace belfry {

std::string cuda_version() { return BELFRY_CUDA; }

std::string version_text() {
  std::string out = fmt::format("belfry {}\ncompiler   {}\nbuild      {}\n", BELFRY_VERSION, BELFRY_COMPILER, BELFRY_BUILD_TYPE);
  if (std::string_view(BELFRY_SANITIZERS) != "none") out += fmt::format("sanitizers {}\n", BELFRY_SANITIZERS);
  out += fmt::format("oneDNN     {}.{}.{}\nfmt        {}\n", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH, BELFRY_FMT);
  out += fmt::format("CUDA       {}", cuda_version().empty() ? "not in this build" : cuda_version());
  return out;
}

int cli_main(int argc, char** argv) {
  CLI::App app("Places a dataflow graph on devices, writes the plan to a file, and runs it.", "belfry");
  app.set_version_flag("--version", version_text, "What was built, by what, with what");
  app.footer("Example: belfry devices");
  app.require_subcommand(1);
  add_devices_verb(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "belfry: {}\n", e.what());
    return 1;
  }
}

}  // namespace belfry
