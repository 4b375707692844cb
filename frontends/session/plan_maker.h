// Which plan a call runs: the one that was given where it serves, else one made for mode, batch and fetches.
#pragma once

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/frontends/session/placement_scorer.h>
#include <belfry/frontends/session/session.h>

namespace belfry {

/// What a plan is made for.
struct PlanKey {
  Mode mode = Mode::step;
  std::int64_t batch = 1;
  std::map<std::string, std::int64_t> symbols;  ///< all but the rows'
  std::vector<std::string> fetches;
  bool operator==(const PlanKey&) const = default;
};

class PlanMaker {
 public:
  PlanMaker(Graph graph, Strategy strategy, SessionOptions options);
  /// The plan's decisions and groups; `as_given`, and without rules and other devices: the plan itself where it serves, and its kernels and threads.
  PlanMaker(std::shared_ptr<const PlacedGraph> plan, bool as_given, SessionOptions options);

  /// Empty fetches: those by default.
  PlanKey key_of(Mode mode, std::int64_t batch, const std::vector<std::string>& fetches) const;
  /// UserError for feeds that do not fit.
  PlanKey key_of(Mode mode, const Batch& feeds, const std::vector<std::string>& fetches);
  std::vector<std::string> default_fetches(Mode mode) const;
  /// Placed and verified, nothing allocated. UserError where it does not fit the memory of its devices, and for a rule of the
  /// options that decides nothing.
  std::shared_ptr<const PlacedGraph> make(const PlanKey& key);
  /// Of a plan that `make` made and that does not fit: the tensors at its peak, and what was tried and fits.
  std::string what_would_fit(const PlanKey& key, const PlacedGraph& plan) { return what_would_fit(key, plan, strategy_); }
  /// Of other placements of what `make` places.
  PlacementScorer scorer(const PlanKey& key, CostTable costs, const SaidOfPlacements& said);

  const Graph& source() const { return source_; }
  const Graph& training() const { return *training_; }
  const Cluster& cluster() const { return cluster_; }
  const Strategy& strategy() const { return strategy_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }
  const SessionOptions& options() const { return options_; }
  const std::shared_ptr<const Library>& library() const { return library_; }

 private:
  std::shared_ptr<const Graph> graph_for(Mode mode, const std::vector<std::string>& fetches);
  /// `stretches` of the forward pass to compute again; none: as the options say.
  PlacedGraph placed(const PlanKey& key, const Strategy& strategy, std::size_t must_decide, std::optional<int> stretches = {});
  /// `made_by`: the strategy that made the plan.
  std::string what_would_fit(const PlanKey& key, const PlacedGraph& plan, const Strategy& made_by);
  std::map<std::string, std::string> engines() const;
  const std::function<std::vector<FusionGroup>(const Graph&)>& groups() const;
  /// Those of the plan that was given, or those; empty: none are wanted.
  std::function<std::vector<FusionGroup>(const Graph&)> all_groups() const;
  /// The given plan's, on the devices that stand in for its own.
  Placement decisions() const;
  PlaceOptions place_options(const Graph& graph, const PlanKey& key) const;
  /// The same with what the options say to a strategy.
  PlaceOptions strategy_options(const Graph& graph, const PlanKey& key) const;
  std::shared_ptr<const Graph> bound_graph(const PlanKey& key);
  Cluster local(const std::vector<DeviceId>& devices, const std::vector<DeviceId>& asked);
  void know_kernels(const std::vector<DeviceId>& needed);
  ValueId fetched(const Graph& graph, Mode mode, const std::string& name) const;
  void check_rules(const PlanKey& key);
  /// The choice stands for all other plans; gives the plan of the key, if that is what was forecast.
  std::shared_ptr<PlacedGraph> choose_strategy(const PlanKey& key);
  bool given_steps() const;
  bool given_serves() const;
  bool runs_given(const PlanKey& key) const;
  std::vector<std::string> departures(const PlanKey& key) const;

  HostFacts host_ = host_facts();
  Graph source_;
  Strategy strategy_;
  std::vector<Candidate> candidates_;           ///< of which the strategy is the first; without their plans
  SessionOptions options_;
  std::shared_ptr<const Library> library_;
  Cluster cluster_;
  std::shared_ptr<const PlacedGraph> decided_;  ///< a plan whose decisions are kept
  bool as_given_ = false;                       ///< and that runs as it stands
  std::shared_ptr<const Graph> training_;
  std::map<std::pair<Mode, std::vector<std::string>>, std::shared_ptr<const Graph>> inference_;
  bool rules_checked_ = false, draws_checked_ = false;
  bool told_ = false;                           ///< that another plan than the given one serves: shorter batches have plans of their own
};

}  // namespace belfry
