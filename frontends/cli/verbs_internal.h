// The verbs of the command line, one function and one file each.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace belfry {

struct Library;
/// Made only by verbs that need it, so that --help starts at once.
using LibrarySource = std::function<std::shared_ptr<const Library>()>;

/// Adds the verb to the program's command line; its work is done while the line is parsed.
void add_devices_verb(CLI::App& app);
void add_place_verb(CLI::App& app, const LibrarySource& library);
void add_show_verb(CLI::App& app, const LibrarySource& library);
void add_run_verb(CLI::App& app, const LibrarySource& library);
void add_train_verb(CLI::App& app, const LibrarySource& library);
void add_runs_verb(CLI::App& app);
void add_evaluate_verb(CLI::App& app, const LibrarySource& library);
void add_predict_verb(CLI::App& app, const LibrarySource& library);
void add_compare_verb(CLI::App& app, const LibrarySource& library);
void add_diff_verb(CLI::App& app, const LibrarySource& library);
void add_convert_verb(CLI::App& app, const LibrarySource& library);
void add_forecast_verb(CLI::App& app, const LibrarySource& library);
void add_bench_verb(CLI::App& app, const LibrarySource& library);
void add_data_verb(CLI::App& app, const LibrarySource& library);
void add_completion_verb(CLI::App& app, const LibrarySource& library);

/// Lines of `--version`: what was built, by what, with what; for machines as one value of JSON.
std::string version_text(bool json);

}  // namespace belfry
