// Why a plan that names GPUs cannot run here, and what can be taken instead.
#pragma once

#include <string>
#include <vector>

#include <belfry/executor/device/cuda/gpu_facts.h>
#include <belfry/executor/program.h>
#include <belfry/graph/device_id.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// "device gpu:0 cannot be used: …; what to do. Here are cpu:0-1 and sim:0, which …".
std::string no_gpu_text(const DeviceId& device, const CudaFacts& facts, int cores);

/// UserError for the first GPU among the devices, after opening the backend for its reason. Nothing where there is none.
void refuse_gpus(const std::vector<DeviceId>& devices);

/// The same for the devices on which the plan has streams, unless there are kernels for GPUs.
void refuse_gpus(const PlacedGraph& plan, const KernelTables& kernels);

}  // namespace belfry
