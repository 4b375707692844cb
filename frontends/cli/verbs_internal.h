// The verbs of the command line, one function and one file each.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace belfry {

/// Adds the verb to the program's command line; its work is done while the line is parsed.
void add_devices_verb(CLI::App& app);

/// Lines of `--version`: what was built, by what, with what.
std::string version_text();
/// Is a CUDA toolkit part of this build? Its version, else empty.
std::string cuda_version();

}  // namespace belfry
