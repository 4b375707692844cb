// One tower graph on one cluster, placed as often as wanted: what no placement changes is made once.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/links.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/readers.h>
#include <belfry/placer/assign.h>
#include <belfry/placer/lower.h>
#include <belfry/placer/place.h>

namespace belfry {

class Placer {
 public:
  Placer(TowerGraph towers, const Cluster& cluster, const PlaceOptions& options);
  Placer(const Placer&) = delete;  // forecasts look at its plan

  /// All of a plan but its hash, records and the placement's rules; it stands until the next call. The placement must be of the graph's towers, batch,
  /// combine and threads.
  PlacedGraph& place(const Placement& placement, std::size_t must_decide);
  /// The same without bytes, for what asks for seconds alone.
  PlacedGraph& place_for_time(const Placement& placement, std::size_t must_decide = 0);
  const PlacedGraph& plan() const { return plan_; }
  /// Of the plan, as long as it stands.
  const Instances& instances() const { return *instances_; }
  const NumberLists& readers() const { return readers_; }

 private:
  struct Known {
    std::int64_t rows;
    std::size_t ranges;  // 0: whole
    std::string kind;
    KernelChoice choice;
  };

  void reset();
  bool place_nodes(const std::vector<PlacementRule>& rules, std::size_t must_decide, FixedNodes& fixed);
  void add_lacking(FixedNodes& out) const;
  void fix(const FixedNodes& nodes);
  void choose(const PlanNode& node, const Share& share, const std::string& kind, Variant& variant);
  void choose_kernels();

  PlaceOptions options_;
  bool gpus_, once_ = true;                         // whether the cluster has any; whether what can be made once is
  PlacedGraph plan_;
  std::optional<Apart> apart_;                      // of its cluster
  std::optional<Instances> instances_;
  std::shared_ptr<MemoryParts> memory_;
  NumberLists readers_;
  Spare spare_;
  // Of the tower graph as it was given.
  std::size_t values_;
  std::vector<std::vector<ValueIndex>> inputs_;     // per node: lowering changes them
  std::vector<Attributes> hows_;                    // per fetch, likewise
  NodeNames names_;
  NumberLists read_by_;
  std::vector<std::string> kinds_;                  // per device, whose kernels it runs
  std::vector<std::vector<Known>> kernels_;         // per first output
};

/// A placer, and forecasts of its plan.
class ForecastPlacer : public Placer {
 public:
  /// The table must live as long.
  ForecastPlacer(TowerGraph towers, const Cluster& cluster, const PlaceOptions& options, const CostTable& costs)
      : Placer(std::move(towers), cluster, options), forecaster_(plan(), costs), values_(plan().values.size()) {}
  /// Of a step of the plan that stands; where it takes longer than `limit`, seconds above that.
  double seconds(double limit = std::numeric_limits<double>::infinity()) { return forecaster_.seconds(values_, instances(), readers(), limit); }

 private:
  Forecaster forecaster_;
  std::size_t values_;  // of the tower graph
};

/// As `place` with the placement's arithmetic, by way of a strategy's answer.
TowerGraph expand_for(std::shared_ptr<const Graph> graph, const Division& division, std::int64_t batch, const PlaceOptions& options);

/// What backward computes again: stretches, where there are any, go before nodes that are named. The rules say what leaves its device.
std::vector<std::string> recomputed_nodes(const TowerGraph& towers, int stretches, const std::vector<std::string>& nodes, const Rules& rules, const Cluster& cluster);

/// Of what rules say, but for reasons.
std::size_t hash_of(const Rules& rules);
/// What a strategy divides, its threads named.
Division division_of(const Graph& graph, const Strategy& strategy, const Cluster& cluster);
/// What it decides for its tower graph, but for the rules; its own are to go behind those of the options and of requests.
std::pair<Placement, Rules> decided_by(const Strategy& strategy, const Division& division, const TowerGraph& towers, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options);
/// What a strategy is told of the memory of its devices: while its plans do not fit, ever less on those that lacked some.
class MemoryTold {
 public:
  MemoryTold(const Strategy& strategy, const Cluster& cluster) : by_memory_(strategy.by_memory), cluster_(cluster), lacked_(by_memory_ ? cluster.devices.size() : 0) {}
  const Cluster& cluster() const { return told_ ? *told_ : cluster_; }
  /// False where these rules, whatever their reasons, were placed before.
  bool is_new(const Rules& rules) const;
  /// Of a plan that does not fit: what made it, and bytes per device.
  void lacks(const Rules& rules, const std::vector<std::int64_t>& needed);
  /// Whether it is to be asked again.
  bool tighten();

 private:
  bool by_memory_;
  const Cluster& cluster_;
  std::vector<std::int64_t> lacked_;
  std::optional<Cluster> told_;
  std::vector<std::size_t> known_;  // hashes of rules
  int rounds_ = 0;
};

/// The rules in their order.
Rules all_rules(const PlaceOptions& options, const Rules& requests, const Rules& strategy);

}  // namespace belfry
