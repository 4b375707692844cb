// Ops, kernels and strategies together: what a program can do. No globals: a user adds their own and hands it on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/device/cuda/gpu_meter.h>
#include <belfry/executor/program.h>
#include <belfry/graph/op_def.h>
#include <belfry/placer/expand.h>
#include <belfry/placer/strategy.h>

namespace belfry {

struct Library {
  std::shared_ptr<const OpSet> ops;
  KernelTables kernels;                  ///< by kind of device; those of GPUs come with the backend, once a device is a GPU
  /// Opens a GPU; empty: by the backend. DeviceError where it cannot.
  std::function<std::shared_ptr<Device>(const DeviceId&)> open_gpu;
  std::function<std::unique_ptr<GpuMeter>(const std::vector<int>& gpus)> gpu_meter;  ///< likewise
  std::vector<StrategyDef> strategies;
  std::function<std::vector<FusionGroup>(const Graph&)> groups;      ///< what becomes one kernel
  std::function<std::vector<FusionGroup>(const Graph&)> gpu_groups;  ///< the same where there are GPUs; empty: as `groups`

  /// UserError with the known names.
  const StrategyDef& strategy(const std::string& name) const;
};

/// Everything that comes with Belfry.
std::shared_ptr<const Library> standard_library();

}  // namespace belfry
