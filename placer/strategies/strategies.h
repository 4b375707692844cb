// The strategies that come with Belfry.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <belfry/placer/strategy.h>

namespace belfry {

/// Everything on one device: the reference.
struct Single {
  DeviceId device = cpu(0);
  int towers = 1;
  Combine combine = Combine::global_mean;
  int threads = 0;
  Division divide(const Graph&, const Cluster&) const;
  Rules assign(const TowerGraph&, const Cluster&) const;
};

/// A tower per device (or more), with shared variables on one device, or over several: by their bytes, or each where it costs least.
struct Towers {
  std::vector<DeviceId> devices;
  DeviceId variables = cpu(0);
  bool spread = false;  ///< in place of `variables`: the largest first, each with its slots to the device that has least
  int towers = 0;  ///< 0: one per device
  Combine combine = Combine::global_mean;
  int threads = 0;
  bool chosen = false;  ///< in place of `variables`: by cost, over `devices` and `variables`
  Reduce reduction = Reduce::tree;  ///< or hierarchical
  Division divide(const Graph&, const Cluster&) const;
  Rules assign(const TowerGraph&, const Cluster&, const CostTable& costs = {}) const;
};

/// A tower per device (or more), with a copy of every variable on each device. Over more than two devices a large gradient
/// is added in ranges, one per device, and gathered: so much crosses as a ring would carry. Gradients are added in buckets, in
/// the order in which backward makes them.
struct Mirrored {
  std::vector<DeviceId> devices;
  int towers = 0;
  Combine combine = Combine::global_mean;
  int threads = 0;
  Reduce reduction = Reduce::tree;
  std::optional<std::int64_t> bucket = {};  ///< bytes of gradients; 0: each by itself; none: the size with the shortest forecast step
  Collectives collectives = Collectives::tree;
  Division divide(const Graph&, const Cluster&) const;
  Rules assign(const TowerGraph&, const Cluster&, const CostTable& costs = {}) const;
};

/// As Mirrored, but each device has a range of the optimiser's state, adds that range of the gradients and updates that
/// range of the variables, which all devices then gather (ZeRO, stage 2; Rajbhandari et al. 2020). Small values stay whole.
struct Sharded {
  std::vector<DeviceId> devices;
  int towers = 0;
  Combine combine = Combine::global_mean;
  int threads = 0;
  Reduce reduction = Reduce::tree;  ///< not to one
  Collectives collectives = Collectives::tree;
  Division divide(const Graph&, const Cluster&) const;
  Rules assign(const TowerGraph&, const Cluster&) const;
};

/// Workers, each with a tower, and variables spread over server devices by their bytes. Synchronous by default: a plan as any
/// other. With `staleness` or `backup` it is trained by loops (see Loops); not both.
struct ParameterServer {
  std::vector<DeviceId> devices;            ///< of the workers
  std::vector<DeviceId> servers = {cpu(0)};
  std::optional<int> staleness = {};        ///< asynchronous, 0: one gradient after the other
  int backup = 0;                           ///< synchronous, but so many workers are not waited for
  int towers = 0;                           ///< or workers; 0: one per device
  Combine combine = Combine::global_mean;
  int threads = 0;
  Division divide(const Graph&, const Cluster&) const;
  Rules assign(const TowerGraph&, const Cluster&) const;
};

/// What a cut over devices makes small: the busiest one's seconds, one batch's, or nothing: variables are dealt by first use, as many to each.
enum class LayerCut : std::uint8_t { max_load, latency, variables };

/// The net cut over devices: by the user's device scopes where there are any, else by cost within the memory of each.
/// Micro-batches are towers, replica-major; with more than one, `order` makes it a pipeline.
struct Layers {
  using ByMemory = void;  // see Strategy::by_memory
  std::vector<DeviceId> devices;
  int towers = 1, replicas = 1;
  PhaseOrder order = PhaseOrder::by_tower;
  static constexpr int kMostChunks = 1024;
  int chunks = 1;  ///< stages of each device, dealt in turn: for PhaseOrder::interleaved, whose bubble is smaller by as much
  Combine combine = Combine::global_mean;
  int threads = 0;
  LayerCut cut = LayerCut::max_load;
  void check(const std::string& name, bool asked = true) const;  ///< UserError of the strategy of that name where the devices are not shared by the replicas, which somebody asked for or not, or chunks are of no such order
  Division divide(const Graph&, const Cluster&) const;
  Rules assign(const TowerGraph&, const Cluster&, const CostTable& costs = {}) const;  ///< UserError where no cut fits the devices' memory
};

/// The strategy with the shortest step by forecast: over all devices, those of a kind or speed, half, a quarter, …, the fastest first; then what is near the best. A session chooses once, by the first program that it makes, be it of training or of inference.
struct Auto {
  std::vector<DeviceId> devices;
  int towers = 0;  ///< 0: as many as each strategy takes by default
  Combine combine = Combine::global_mean;
  int threads = 0;
  Choice choice(const SecondsOf& seconds) const;
};

/// The same with forward values computed again in backward; so many stretches of the forward pass leave theirs.
Strategy recomputing(Strategy strategy, int stretches);

/// As the command line knows them: auto, single, towers, mirrored, sharded, parameter_server, layers, pipeline, hybrid.
std::vector<StrategyDef> standard_strategies();
Strategy to_strategy(const Single& s);
Strategy to_strategy(const Towers& s);
Strategy to_strategy(const Mirrored& s);
Strategy to_strategy(const Sharded& s);
/// UserError for staleness together with backup workers, and for more backup workers than can be spared.
Strategy to_strategy(const ParameterServer& s);
Strategy to_strategy(const Layers& s);
Strategy to_strategy(const Auto& s);
}  // namespace belfry
