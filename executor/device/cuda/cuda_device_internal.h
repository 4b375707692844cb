// A GPU as the executor uses it: memory, queues on CUDA streams, copies.
#pragma once

#include <chrono>
#include <memory>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/executor/device/device.h>
#include <belfry/graph/device_id.h>

namespace belfry {

/// gpu:N, or a logical device gpu:N/k, which shares its GPU's context. Devices opened before and this one read each other's
/// memory where the hardware lets them. DeviceError where there is none, or the driver refuses; of its queues also where work has not
/// ended so long after another GPU failed, for which it may wait.
std::shared_ptr<Device> open_cuda_device(const std::shared_ptr<CudaToolkit>& toolkit, const DeviceId& id, std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace belfry
