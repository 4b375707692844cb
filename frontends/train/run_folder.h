// The folder that a training has written, read back to serve the net.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/data/pictures.h>
#include <belfry/frontends/session/library.h>
#include <belfry/frontends/session/session.h>
#include <belfry/graph/graph.h>

namespace belfry {

struct RunFolder {
  Graph graph;                            ///< without the optimizer
  State weights = {};                     ///< its variables; where the run evaluated with moving averages, these
  std::vector<std::string> classes = {};  ///< what the numbers of the labels stand for; empty where nobody said
  std::optional<Pixels> pixels = {};      ///< of a net that reads pictures
  std::filesystem::path state = {};       ///< the file that the weights are of
};

/// Whether it is a folder with a run.json.
bool is_run_folder(const std::filesystem::path& folder);
/// Its variables' file: of a training that ended what it left, else its best or its latest checkpoint. UserError where there is none.
std::filesystem::path run_state(const std::filesystem::path& folder);
/// UserError for a folder that is none, that has no graph, or whose state is of another one. `state` in place of the folder's own.
RunFolder read_run_folder(const std::filesystem::path& folder, const Library& library = *standard_library(), const std::filesystem::path& state = {});

/// What run.json says of pixels, as text of a JSON object.
std::string pixels_text(const Pixels& pixels);

}  // namespace belfry
