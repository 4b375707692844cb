// What the verbs share: sources (nets, graphs, plans), devices and strategies, feeds, states, files.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/cli/wrong_use_internal.h>
#include <belfry/frontends/session/session.h>
#include <belfry/graph/plan/cost.h>

namespace CLI {
class App;
class Validator;
}

namespace belfry {

/// A whole number of decimal digits alone; what an option is given as text.
CLI::Validator whole(std::uint64_t low, std::uint64_t high);
CLI::Validator fraction(double low, double high);  ///< the same of a number with decimals
CLI::Validator count();  ///< a batch, a count of steps or of rows: 1 to 2^62

/// A net by name, with settings as in mobilenet_v2:alpha=0.35,image=96; a graph file; a plan file; or the folder of a run, which is its graph and state.
struct Source {
  std::shared_ptr<const Graph> graph;           ///< of a plan: after the passes
  std::shared_ptr<const PlacedGraph> plan;      ///< null unless it was a plan
  std::string state = {};                       ///< a file of variables' values that a graph file names, or a run; empty if none
  std::string run = {}, file = {};              ///< the folder of a run, where it is of one; and what was read, but for a net's name
};
Source load_source(const std::string& what, const Library& library);
/// The text of the file, read once; none for a net's name.
std::optional<std::string> source_text(const std::string& what);
Source load_source(const std::string& what, const std::optional<std::string>& text, const Library& library);

std::vector<std::string> cluster_names();  ///< those that come with the program, sorted
/// Of a file, else of one that comes with the program.
std::string cluster_text(const std::string& name);
CLI::Validator is_cluster();

/// --precision, --strategy, --devices, --towers, -O, --threads-per-tower, --placement, --move, --seed, --cluster, --memory-fraction, --recompute, --no-cuda-graph, --fast-nondeterministic, --soft-placement.
struct PlacementArguments {
  std::string strategy, devices, placement_file, cluster_file, calibration;  ///< devices: cpu:0 if empty
  std::string precision, optimizer;             ///< empty: the graph's own
  int towers = 0, threads = 0, recompute = 0;
  std::uint64_t seed = 0;
  std::optional<double> memory_fraction, learning_rate;
  bool no_cuda_graph = false, fast_nondeterministic = false, soft = false;
  std::vector<std::string> options, moves;
  std::vector<PlacementRule> rules = {};        ///< before all others but moves: those of a split that was given in the place of a placement file
  bool runs = true;                             ///< of a verb that does
  bool brief = false;                           ///< of what `auto` has looked at the best are said
  bool said = false;                            ///< by a session of the same arguments: what was told of them is not told again
  bool forecast = false;                        ///< the session is for forecasts alone: GPUs and other machines are fine
  void add_to(CLI::App& app, bool runs = true); ///< runs: so that what is of runs alone is offered
};

/// A session of the source as the arguments say: a plan runs as it stands unless moves change its decisions, or all that
/// follows from them is derived `anew`. Where another plan runs than the file's, it says so.
Session make_session(const Source& source, const PlacementArguments& arguments, const std::shared_ptr<const Library>& library, bool anew = false);

/// What --calibration gave; empty without it.
const CostTable& costs_of(const Session& session);
/// Rows of a step: those given, else the plan's, else the placement file's; 0 if none says.
std::int64_t batch_of(std::int64_t given, const Source& source, const PlacementArguments& arguments);
/// The variables that the graph's file names, then those of `file`, if it is not empty. UserError where one cannot be read.
void load_states(Session& session, const Source& source, const std::string& file);
/// Says so where no file gave the variables their values: what is evaluated is then the net before any training.
void say_initial(const Session& session, const Source& source, const std::string& file);
/// UserError with what a plan's file is found wrong by, and the command that derives it anew; of nothing found none.
void refuse_objections(const std::vector<std::string>& found, const std::string& file);
/// As `refuse_objections`, of a plan that does not hold. Says so where its arithmetic hash is another than the file records, or it was made for another instruction set or other libraries.
void refuse_broken(const Source& source, const std::string& file, const Library& library);

/// Says so where two plans are of unlike graphs, in which nodes of one name are all there is to hold beside each other. UserError where no node has a twin.
void say_unlike(const PlacedGraph& a, const std::string& file_a, const PlacedGraph& b, const std::string& file_b);
Graph with_precision(Graph graph, const std::string& precision);  ///< of another than its own where that is not empty
/// Of a strategy that trains by loops: what it promises, and the plans of a worker and of the servers, written where `file` is not
/// empty: beside it, "plan.json" as plan.worker.json and plan.server.json. `placed`: that these are only placed, so that it says what keeps them from running here; `facts` gets them as entries of JSON.
void say_loops(Session& session, std::int64_t batch, const std::vector<std::string>& fetches, const std::string& file, const PlacementArguments* placed = nullptr, std::vector<std::string>* facts = nullptr);

PlacementRule parse_move(const std::string& text);  ///< 'tower_1/logits/**=cpu:0' as a rule

/// Tensors of a safetensors or npz file; that of an npy file has the file's name. With a graph those of types that are not read are passed over unless a node is named so, or nothing else is there.
std::map<std::string, HostTensor> load_tensors(const std::string& path, const Graph* graph = nullptr);
/// UserError for a name that ends otherwise than the formats that as many tensors can be written in: .safetensors, .npz and, of one alone, .npy. Names without an ending are safetensors.
void refuse_ending(const std::string& file, std::size_t tensors);
/// In the format that the file's name says.
void save_tensors(const std::string& path, const std::map<std::string, HostTensor>& tensors);
/// UserError for files that cannot be written where they are to be: said before the work whose result they are. Empty names pass.
void refuse_unwritable(const std::vector<std::string>& files);
std::vector<std::string> files_read(const std::string& source, const PlacementArguments& arguments, std::vector<std::string> more = {});  ///< of a run's folder all parts, what the arguments name, and `more`
/// UserError where `file`, given by `option`, is one of those that are read.
void refuse_over(const char* option, const std::string& file, const std::vector<std::string>& read);
/// Says which tensors of a file of feeds no input of the graph has the name of.
void say_unread(const Graph& graph, const std::map<std::string, HostTensor>& feeds, const std::string& file);
/// Feeds of N steps: rows k*B … (k+1)*B of every feed with a row axis; the others are the same in each step.
class StepFeeds {
 public:
  /// Without a batch B is rows / N. UserError where rows are too few.
  StepFeeds(const Graph& graph, const std::map<std::string, HostTensor>& feeds, std::int64_t steps, std::optional<std::int64_t> batch);
  Batch operator()(std::int64_t step) const;  ///< copies of its rows, and views of what it takes whole

 private:
  const Graph& graph_;
  const std::map<std::string, HostTensor>& feeds_;
  std::int64_t rows_ = 0;  ///< of a step
};

/// Words for a person on standard error; data go to standard output.
void say(const std::string& text);
/// From now on nothing is said, until errors are.
void be_quiet(bool quiet);
/// What of a plan is slow on purpose, where there is something: three lines, or all; what crosses links too.
void say_slow(const PlacedGraph& plan, bool all = true, bool links = true);

}  // namespace belfry
