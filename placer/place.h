// place: a graph and a placement become a plan. Everything that is not a decision is derived here.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <belfry/graph/plan/cost.h>
#include <belfry/graph/plan/placed_graph.h>
#include <belfry/placer/expand.h>
#include <belfry/placer/strategy.h>

namespace belfry {

struct KernelChoice {
  std::string name;
  std::int64_t scratch_bytes = 0;
  bool in_place = true;  ///< may write over inputs that the op allows
  std::string refused = {};  ///< of a reference for a GPU: what the kernels there say to the query
};
/// One node on one local type, for a kind of device and a number of threads.
struct KernelQuery {
  const TowerGraph& graph;
  const PlanNode& node;
  std::vector<LocalType> inputs, outputs;
  std::string device_kind;
  int threads = 1;
};
/// Which kernels exist is plain data that the session hands in; a pure function of the query.
using KernelChooser = std::function<KernelChoice(const KernelQuery&)>;

/// What backward computes again: all but what stretches of the forward pass leave to each other (nodes_to_recompute), 0: nothing;
/// or the named nodes.
struct Recompute {
  int stretches = 0;
  std::vector<std::string> nodes = {};
};

struct PlaceOptions {
  std::vector<std::pair<std::string, ValueId>> fetches = {};
  bool updates = true;
  std::vector<PlacementRule> rules = {};  ///< before a strategy's
  KernelChooser kernels = {};   ///< empty: references
  std::function<std::vector<FusionGroup>(const Graph&)> groups = {};
  std::string isa = {}, libraries = {};  ///< records of this machine, for the plan
  Recompute recompute = {};
  std::size_t must_decide = 0;  ///< so many of the placement's first rules must each decide something
  std::shared_ptr<const CostTable> costs = {};  ///< what was measured on this machine, for strategies that go by cost
  bool accumulate_all = false;  ///< towers in turn add parts of any size as they make them, whatever that gains: for tests
  bool soft = false;                                ///< requests that cannot be met are left to the strategy, with a reason
  std::function<void(const std::string&)> warn = {};  ///< told of them
};

/// expand → assign → lower → schedule → memory, by the placement's rules alone: what a plan or a placement file says is what happens.
PlacedGraph place(std::shared_ptr<const Graph> graph, const Placement& placement, const Cluster& cluster, const PlaceOptions& options = {});

/// divide → expand → assign → the rest. Rules of the options go first, then the user's requested devices, then the strategy's.
PlacedGraph place(std::shared_ptr<const Graph> graph, const Strategy& strategy, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options = {});

/// Threads of a tower where nothing is said: the host's cores in equal parts, one at least.
int default_threads(const Cluster& cluster, int towers);

/// XXH3 over tower graph, batch, and per node op, threads and kernel, never a device: equal hashes mean equal bits (where no kernel is nondeterministic, as its name says).
std::string arithmetic_hash(const PlacedGraph& plan);

}  // namespace belfry
