// GPUs as a session meets them: the backend's kernels when a device is a GPU, the devices when a plan runs, and why not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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

/// Makes a plan's program ready. Where something that its GPUs need turns out not to be there, the UserError that says so. `given`: the plan is the user's.
void with_words_of_absence(const PlacedGraph& plan, bool given, const std::function<void()>& make_ready);

/// The library, with the backend's kernels where one of the devices is a GPU and it has none of its own. UserError where there
/// is no backend; a driver is not needed. `plan`: whose devices they are, if there is one.
std::shared_ptr<const Library> with_gpu_kernels(std::shared_ptr<const Library> library, const std::vector<DeviceId>& devices, const PlacedGraph* plan = nullptr);

/// The same for a cluster: without a backend UserError for those of its GPUs alone that are `asked` for.
std::shared_ptr<const Library> with_gpu_kernels(std::shared_ptr<const Library> library, const Cluster& cluster, const std::vector<DeviceId>& asked, const PlacedGraph* plan = nullptr);

/// The same where there is a backend, else the library as it is: for forecasts, which need no kernels.
std::shared_ptr<const Library> with_known_gpu_kernels(std::shared_ptr<const Library> library);

/// "GPU backend: why it is not here; what to do"; empty where it is.
std::string why_no_gpu_kernels();

/// Pairs of the GPUs here, whole ones, that read each other's memory.
std::vector<std::vector<DeviceId>> gpu_peers(const std::vector<DeviceId>& devices);

/// A fraction of the memory of the GPUs here, in bytes by index, as far as they can be asked: never what is free at the moment, so that plans stay the same.
std::map<int, std::int64_t> gpu_memory(const std::vector<DeviceId>& devices, double fraction);

/// The GPUs on which the plan has nodes, but for those that are open. MissingError that says why one cannot be used.
Devices open_gpus(const PlacedGraph& plan, const Library& library, const Devices& open = {});

/// What is known to keep a plan from running on those of its GPUs that are here: of each, and of the libraries that its kernels call.
std::vector<Missing> what_stops(const PlacedGraph& plan);

/// Of the GPUs that are open; null where the library opens its own and has no meter. DeviceError that says what is missing.
std::unique_ptr<GpuMeter> open_meter(const Devices& open, const Library& library);

}  // namespace belfry
