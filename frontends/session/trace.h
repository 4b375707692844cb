// A run as a Chrome trace: one track per stream; Perfetto opens it.
#pragma once

#include <string>
#include <vector>

#include <belfry/executor/device/cuda/gpu_meter.h>
#include <belfry/executor/run.h>

namespace belfry {

/// JSON text with a slice per step, named as in the plan with its tower, and counters of what was read of GPUs meanwhile.
std::string chrome_trace(const BoundPlan& bound, const std::vector<TraceEntry>& trace, const std::vector<GpuReading>& readings = {});

}  // namespace belfry
