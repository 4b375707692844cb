// What the verbs share: sources (nets, graphs, plans), devices and strategies, feeds, states, files.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/session/session.h>

namespace CLI {
class App;
}

namespace belfry {

/// A net by name, a graph file, or a plan file.
struct Source {
  std::shared_ptr<const Graph> graph;           ///< of a plan: after the passes
  std::shared_ptr<const PlacedGraph> plan;      ///< null unless it was a plan
};
Source load_source(const std::string& what, const Library& library);

/// --strategy, --devices, --towers, -O, --threads-per-tower, --placement, --move, --seed, --cluster.
struct PlacementArguments {
  std::string strategy, devices = "cpu:0", placement_file, cluster_file;
  int towers = 0, threads = 0;
  std::uint64_t seed = 0;
  std::vector<std::string> options, moves;
  void add_to(CLI::App& app);
};

/// A session of the source as the arguments say: a plan runs as it stands unless moves change its decisions, or all that
/// follows from them is derived `anew`. Where another plan runs than the file's, it says so.
Session make_session(const Source& source, const PlacementArguments& arguments, std::shared_ptr<const Library> library, bool anew = false);
/// UserError with what is wrong with a plan that does not hold, and the command that derives it anew. Says so where its
/// arithmetic hash is not the one that the file records.
void refuse_broken(const Source& source, const std::string& file);

/// 'tower_1/logits/**=cpu:0' as a rule.
PlacementRule parse_move(const std::string& text);

/// Tensors of a safetensors, npz or npy file.
std::map<std::string, HostTensor> load_tensors(const std::string& path);
/// Feeds of N steps: rows k*B … (k+1)*B of every feed with a row axis. UserError where rows are too few.
std::vector<std::map<std::string, HostTensor>> feeds_of_steps(const Graph& graph, const std::map<std::string, HostTensor>& feeds, std::int64_t steps, std::optional<std::int64_t> batch);

/// Words for a person on standard error; data go to standard output.
void say(const std::string& text);

}  // namespace belfry
