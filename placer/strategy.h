// A strategy: how many towers there are, and which devices their nodes and the variables get. It cannot change arithmetic.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <belfry/graph/plan/cluster.h>
#include <belfry/graph/plan/cost.h>
#include <belfry/graph/plan/placement.h>
#include <belfry/graph/plan/tower_graph.h>

namespace belfry {

/// How gradients are added where several devices have parts. Tree: each device that holds the sum adds all parts. Hierarchical:
/// one device of each link group (`link_groups`) adds its group's first, and holds the sum for it. To one: one device adds, the
/// others copy. These have the same bits. Ring: ranges go round the devices; the order of sums, and so the bits, are others.
enum class Reduce : std::uint8_t { tree, hierarchical, to_one, ring };

struct Division {
  int towers = 1;
  Combine combine = Combine::global_mean;
  int threads = 0;  ///< of a tower; 0: the first host's cores / towers, at least 1
  PhaseOrder order = PhaseOrder::by_tower;
  int recompute = 0;  ///< stretches of the forward pass, as PlaceOptions::recompute, which goes before it
  Collectives collectives = Collectives::tree;
};
using Rules = std::vector<PlacementRule>;

/// Training as loops in place of steps: each worker computes gradients of mini-batches of its own, servers apply them. What is
/// joined with what, and computed from which version, is decided by who is ready: no two runs need have the same bits.
struct Loops {
  std::vector<DeviceId> workers, servers;  ///< a worker per entry
  int staleness = 0;  ///< updates that may come between the version a gradient is computed from and the one it is applied to
  int backup = 0;     ///< not 0: an update joins the first (workers - backup) gradients of its version, later ones are dropped
  Combine combine = Combine::global_mean;
  int threads = 0;    ///< of a worker
};

/// What a strategy was made from by name: the devices, -O options, and --recompute.
struct Given {
  std::vector<DeviceId> devices;
  std::map<std::string, std::string> options;
  int recompute = 0;
  bool operator==(const Given&) const = default;
};

struct Choice;
/// Of a step of one tower on a device, what moves aside; to be asked while the choice is made.
using SecondsOf = std::function<double(const DeviceId&)>;

/// Any struct with `divide` and `assign` is one; see placer/strategies/. Its assign may take what was measured here as well.
struct Strategy {
  std::string name;
  std::vector<DeviceId> devices;  ///< what it was given: the cluster is made of these
  std::function<Division(const Graph&, const Cluster&)> divide;
  std::function<Rules(const TowerGraph&, const Cluster&, const CostTable&)> assign;
  std::string options = {};                ///< as the command line takes them, for tables
  std::function<Choice(const SecondsOf&)> choice = {};  ///< of a strategy that is one among others (see choose.h); it has no divide and no assign
  std::optional<Loops> loops = {};         ///< of one that trains by loops: divide and assign serve all that is no step
  std::optional<Given> given = {};         ///< none: it was made otherwise
  bool by_memory = false;                  ///< what it assigns goes by the memory of devices: where a plan does not fit it is asked again, with less on those that lack some
};

/// What a choice looks at.
struct Choice {
  std::vector<Strategy> candidates;
  std::function<std::vector<Strategy>(const Strategy&)> near = {};       ///< what else where one of them is good
  std::function<std::optional<Strategy>(const Strategy&)> smaller = {};  ///< where one does not fit: the same with half the rows a tower; none: there is no such
};

/// One option of a strategy: -O name=value.
struct StrategyField {
  std::string name, help;
  std::vector<std::string> values = {};  ///< all that it takes, the default first; empty: what `help` says
};

/// How a strategy is named on the command line and in files.
struct StrategyDef {
  std::string name, help;
  std::vector<StrategyField> fields;
  /// UserError for an unknown option or a wrong value.
  std::function<Strategy(const std::vector<DeviceId>& devices, const std::map<std::string, std::string>& options)> make;
};

/// A strategy struct as a Strategy.
template <class S>
Strategy strategy(std::string name, std::vector<DeviceId> devices, S s) {
  return {std::move(name), std::move(devices), [s](const Graph& g, const Cluster& c) { return s.divide(g, c); },
          [s](const TowerGraph& g, const Cluster& c, const CostTable& costs) {
            if constexpr (requires { s.assign(g, c, costs); }) return s.assign(g, c, costs);
            else return s.assign(g, c);
          },
          {}, {}, {}, {}, requires { typename S::ByMemory; }};
}

/// Typed reading of -O options: every one that is there must be asked for. A wrong value is a UserError that names the strategy, -O name=value, what it takes and a way out.
class StrategyOptions {
 public:
  StrategyOptions(std::string strategy, std::map<std::string, std::string> given) : strategy_(std::move(strategy)), given_(std::move(given)) {}
  /// A whole number from `least` to `most`; `fallback`, which may be none of these, where it is not given.
  int integer(const std::string& name, int fallback, int least = 0, int most = std::numeric_limits<int>::max());
  std::string text(const std::string& name, const std::string& fallback);
  std::string choice(const std::string& name, const std::vector<std::string>& values);  ///< one of these; the first by default
  Combine combine();
  /// "[towers] -O variables=x: why" as a UserError.
  [[noreturn]] void refuse_value(const std::string& name, const std::string& why) const;
  /// UserError for options that nobody asked for.
  void finish() const;

 private:
  std::string strategy_;
  std::map<std::string, std::string> given_;
  std::vector<std::string> asked_;
};

}  // namespace belfry
