// A graph, a strategy and its state: plans are made and bound per batch size and fetch set; steps run on them.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <belfry/executor/run.h>
#include <belfry/frontends/session/feeds.h>
#include <belfry/frontends/session/library.h>
#include <belfry/frontends/session/placement_scorer.h>
#include <belfry/frontends/session/results.h>
#include <belfry/frontends/session/session_options.h>
#include <belfry/frontends/session/weights.h>
#include <belfry/graph/plan/cost.h>
#include <belfry/placer/choose.h>
#include <belfry/placer/place.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

/// One thread at a time: UserError for a call while another thread's is under way. Its threads begin with the first program: UserError for steps in a fork of that process.
class Session {
 public:
  explicit Session(Graph graph, SessionOptions options = {});  ///< on the first device alone
  Session(Graph graph, Strategy strategy, SessionOptions options = {});
  template <class S>
    requires requires(const S& s) { to_strategy(s); }
  Session(Graph graph, const S& s, SessionOptions options = {}) : Session(std::move(graph), to_strategy(s), std::move(options)) {}
  /// Runs exactly this plan: a step at its batch (`predict`, where it was made for inference) that fetches what the plan does, or less. For other fetches, calls and batches a plan is derived
  /// from its decisions (devices, groups, threads, and its kernels where local types are the same), and `notice` told. With rules, or other devices, it is `placed_anew`. UserError for a plan that does not hold.
  static Session from_plan(std::shared_ptr<const PlacedGraph> plan, SessionOptions options = {});
  /// The rules of the options, then the plan's decisions and its groups; all else is derived anew, kernels too.
  static Session placed_anew(std::shared_ptr<const PlacedGraph> plan, SessionOptions options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  /// One step of training: fetches hold the values before the update. UserError for feeds that do not fit and graphs that train nothing; after a failed step whose updates had
  /// begun every further step is refused until load_state or reset. `next`: the feeds of the step after this one, asked for while GPUs are busy; what
  /// they read of them is copied meanwhile, for the call that is given this very Batch, with tensors that have not changed. It may not call this session; what it throws
  /// is thrown when the step has ended. run and predict take the same.
  Results step(const Batch& feeds, const std::vector<std::string>& fetches = {}, const std::function<Batch()>& next = {});
  /// The same graph without updates: state never changes.
  Results run(const Batch& feeds, const std::vector<std::string>& fetches = {}, const std::function<Batch()>& next = {});
  /// The graph for inference: no dropout, running statistics; only the inputs that the fetches need.
  Results predict(const Batch& feeds, const std::vector<std::string>& fetches = {}, const std::function<Batch()>& next = {});

  /// Builds the programs of these batch sizes ahead.
  void prepare(const std::vector<std::int64_t>& batches, Mode mode = Mode::step, const std::vector<std::string>& fetches = {});
  /// The plan that a step of this batch size runs, as a copy: made and verified, nothing allocated. UserError where it does not fit the memory of its devices.
  PlacedGraph plan(std::int64_t batch, Mode mode = Mode::step, const std::vector<std::string>& fetches = {});
  /// Of such a plan that is over memory, as a forecast's may be: what is held at its peak, and what would fit.
  std::string what_would_fit(std::int64_t batch, Mode mode = Mode::step, const std::vector<std::string>& fetches = {});
  /// Scores other placements of that plan, beside its own on the same devices.
  PlacementScorer scorer(std::int64_t batch, CostTable costs, const std::vector<std::string>& fetches = {}, const SaidOfPlacements& said = {}, Mode mode = Mode::step);

  /// All variables, with their current values.
  State state();
  /// Replaces the named variables, and moving averages of them that are not named; UserError for unknown names or types. All variables end a torn state. Gives who keeps its value.
  std::vector<std::string> load_state(const State& state);
  State weights();  ///< the model alone: what `weight_names` says, without what belongs to its training
  /// Puts weights in their place, from arrays, a safetensors file or a .npz: `fitting_weights` says which, and what is refused. A whole state or a checkpoint
  /// will do, of which only the weights are taken: slots, step and seed stay as they are.
  LoadedWeights load_weights(const State& weights, const LoadWeights& how = {});
  LoadedWeights load_weights(const std::string& file, const LoadWeights& how = {});
  /// Initial values anew, from the seed.
  void reset();
  std::uint64_t seed() const;
  /// Where the data stand after the last finished step: kept for checkpoints, moved by fit.
  struct DataProgress {
    std::int64_t epoch = 0, position = 0, steps = 0;  ///< steps: of training by fit, those that a gate closed too; after an early stop the best epoch's
    std::int64_t steps_of_run = 0;                    ///< that fit took since the session began, or the run that it goes on with
    bool operator==(const DataProgress&) const = default;
  };
  DataProgress data_progress;

  HostTensor variable(const std::string& name);
  const Cluster& cluster() const;              ///< the one that was given, else this machine with the devices that the strategy names
  const Strategy& strategy() const;            ///< of a given plan none has a name
  const std::vector<Candidate>& candidates() const;  ///< of a strategy that is a choice: what was looked at when the first plan was made, fastest first
  const SessionOptions& options() const;
  const Graph& graph() const;                  ///< as it was given
  const Graph& training_graph() const;         ///< after the passes
  /// What the last call of `step` left behind.
  StateAfter state_after() const;
  /// Names fetched by default: those of the plan that was given, else the graph's outputs, losses and metrics.
  std::vector<std::string> default_fetches(Mode mode) const;
  void set_trace(bool on);
  const std::vector<TraceEntry>& trace() const;  ///< of the last step, where it was set on
  std::vector<GpuReading> gpu_readings();        ///< since then, about fifty a second of each GPU
  /// The program that ran last, else one that is built; UserError if there is none. Who keeps it keeps its memory.
  std::shared_ptr<const Program> last_program() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace belfry
