// GPUs as a session meets them: the backend's kernels when a device is a GPU, the devices when a plan runs, and why not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <belfry/executor/device/cuda/gpu_facts.h>
#include <belfry/executor/device/cuda/gpu_meter.h>
#include <belfry/executor/device/device.h>
#include <belfry/frontends/session/library.h>
#include <belfry/graph/device_id.h>
#include <belfry/graph/plan/cluster.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// What is known of the GPUs here: asked when it is first wanted, and once, since asking takes a look at driver and libraries.
class KnownGpus {
 public:
  const CudaFacts& operator()() const;

 private:
  mutable std::once_flag asked_;
  mutable CudaFacts facts_;
};

/// Makes a plan's program ready. Where something that its GPUs need turns out not to be there, the UserError that says so, and `stand_ins`.
void with_words_of_absence(const PlacedGraph& plan, const std::string& stand_ins, const std::function<void()>& make_ready);

/// The library, with the backend's kernels where one of the devices `there` is a GPU and it has none of its own; a driver is not
/// needed. Without a backend as it is; UserError with `stand_ins` where one of those `needed` is a GPU.
std::shared_ptr<const Library> with_gpu_kernels(std::shared_ptr<const Library> library, const std::vector<DeviceId>& there, const std::vector<DeviceId>& needed, const std::string& stand_ins);

/// "GPU backend: why it is not here; what to do"; empty where it is.
std::string why_no_gpu_kernels();

/// Pairs of the GPUs here, whole ones, that read each other's memory, and alone those that read none of the others': Cluster::peers.
std::vector<std::vector<DeviceId>> gpu_peers(const std::vector<DeviceId>& devices, const KnownGpus& gpus);

/// A fraction of the memory of the GPUs here, in bytes by index, as far as they can be asked: never what is free at the moment, so that plans stay the same.
std::map<int, std::int64_t> gpu_memory(const std::vector<DeviceId>& devices, double fraction, const KnownGpus& gpus);

/// The GPUs on which the plan has nodes, but for those that are open. MissingError that says why one cannot be used.
Devices open_gpus(const PlacedGraph& plan, const Library& library, const KnownGpus& gpus, const Devices& open = {});

/// What is known to keep a plan from running on those of its GPUs that are here: of each, and of the libraries that its kernels call. Nothing where the library opens its own.
std::vector<Missing> what_stops(const PlacedGraph& plan, const Library& library, const KnownGpus& gpus);

/// Of the GPUs that are open; null where the library opens its own and has no meter. DeviceError that says what is missing.
std::unique_ptr<GpuMeter> open_meter(const Devices& open, const Library& library);

}  // namespace belfry
