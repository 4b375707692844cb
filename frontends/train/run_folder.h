// The folder that a training writes, read back to serve and to evaluate the net.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <belfry/frontends/data/pictures.h>
#include <belfry/frontends/session/library.h>
#include <belfry/frontends/session/session.h>
#include <belfry/graph/graph.h>

namespace belfry {

/// What run.json says. All of it may be left out: pictures are then fed as arrays, and classes have numbers.
struct RunFacts {
  std::vector<std::string> classes = {};  ///< what the numbers of the labels stand for
  std::vector<std::string> features = {};  ///< the columns of tables that go together into one input, in its order
  std::optional<Pixels> pixels = {};      ///< of a net that reads pictures: what became of them
  bool averages = false;                  ///< the moving averages of the variables serve in their place
  std::string net = {};                   ///< empty: the graph's name
  std::string data = {};                  ///< that it was trained on
  std::string rescale = {};               ///< of `data`, as the option of that name has it
  double hold_out = 0;                    ///< the part of `data` that is held out
  std::string checkpoints = {};           ///< their folder, as seen from this one: they serve while training goes on
  bool ended = true;                      ///< the variables are in the folder too
  std::vector<std::pair<std::string, std::string>> settings = {};  ///< further ones, each as JSON: `belfry runs` shows those that differ
  bool overwrite = false;                 ///< another run that is in the folder is replaced
  bool own = false;                       ///< the writer has seen that it may write there: nothing is refused
};

/// Whether it is a folder with a run.json.
bool is_run_folder(const std::filesystem::path& folder);
/// UserError for a folder that is none, and for a run.json that cannot be read. Settings are left where they are.
RunFacts read_run_facts(const std::filesystem::path& folder);
/// Graph, run.json and, where the training has ended, variables, in a folder that is made if it is not there: `belfry predict`, `evaluate`, `show` and the other
/// verbs take it in a net's place. UserError where a run of another graph, or one of `belfry train`, is there; `overwrite` removes all its parts first, its log
/// too: a training that logs there writes the folder before it begins, with ended = false. UserError too for classes that no output has as many values for.
void write_run_folder(const std::filesystem::path& folder, Session& session, const RunFacts& facts = {});

/// What is there of all that a run has in its folder; checkpoints are none of it.
std::vector<std::filesystem::path> parts_of_run(const std::filesystem::path& folder);

/// Whether a file of this name is a part of the run in the folder, or one of its checkpoints. UserError where the folder is no run's.
bool is_part_of_run(const std::filesystem::path& folder, const std::filesystem::path& file);

struct RunFolder {
  Graph graph;                            ///< without the optimizer
  State weights = {};                     ///< its variables; where the run evaluated with moving averages, these
  std::vector<std::string> classes = {}, features = {};
  std::optional<Pixels> pixels = {};
  std::filesystem::path state = {};       ///< the file that the weights are of
};

/// The file of a run's variables: of a training that ended what it left, else its best or its latest checkpoint; none where there is no such yet.
std::optional<std::filesystem::path> find_run_state(const std::filesystem::path& folder);
/// UserError where there is none.
std::filesystem::path run_state(const std::filesystem::path& folder);
/// UserError for a folder that is none, that has no graph or no weights, or whose state is of another one. `state` in place of the folder's own.
RunFolder read_run_folder(const std::filesystem::path& folder, const Library& library = *standard_library(), const std::filesystem::path& state = {});

}  // namespace belfry
