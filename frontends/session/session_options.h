// What a session is asked for besides its graph and strategy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/session/library.h>
#include <belfry/graph/plan/cluster.h>
#include <belfry/graph/plan/cost.h>
#include <belfry/graph/plan/placed_graph.h>
#include <belfry/placer/place.h>

namespace belfry {

class KnownGpus;

struct SessionOptions {
  std::uint64_t seed = 0;                      ///< of initial values and all random draws
  int cores = 0;                               ///< of this host; 0: what the machine has
  std::shared_ptr<const Library> library = {}; ///< empty: the standard one
  bool fuse = true;
  Recompute recompute = {};                    ///< forward values that backward computes again instead of keeping them
  bool cuda_graphs = true;                     ///< from the second step on a GPU's work is put on its stream as a whole
  bool fast_nondeterministic = false;          ///< kernels of GPUs may be chosen whose bits may differ from run to run; their names say so
  double memory_fraction = 0.95;               ///< of a GPU's memory that plans may take
  std::optional<Cluster> cluster = {};         ///< in place of the local one
  std::shared_ptr<const CostTable> costs = {}; ///< what was measured here, for strategies that go by cost
  bool soft_placement = false;                 ///< requests that cannot be met are warnings, told to `notice`, and reasons in the plan
  std::vector<DeviceId> devices = {};          ///< in place of those of a plan that is given, in their order
  std::vector<PlacementRule> rules = {};       ///< before all others; UserError for one that decides nothing
  /// Plans are made to be forecast: kinds of devices without kernels here get the name "roofline", nothing is verified, and what does not fit is not refused. Such a session runs nothing.
  bool forecast = false;
  std::function<void(const std::string&)> notice = {};  ///< told where another plan is made than the one that was given, and when a program goes for the first time
  std::string stand_ins = {};                  ///< words that offer others in place of GPUs that cannot be used; empty: by the devices of the strategy or the plan
  std::shared_ptr<const KnownGpus> gpus = {};  ///< what is known of those here; empty: asked once, when a plan has some
};

}  // namespace belfry
