// A GPU as the executor uses it: memory, queues on CUDA streams, copies.
#pragma once

#include <memory>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/executor/device/device.h>
#include <belfry/graph/device_id.h>

namespace belfry {

/// gpu:N, or a logical device gpu:N/k, which shares its GPU's context. Devices opened before and this one read each other's
/// memory where the hardware lets them. DeviceError where there is none, or the driver refuses.
std::shared_ptr<Device> open_cuda_device(const std::shared_ptr<CudaToolkit>& toolkit, const DeviceId& id);

}  // namespace belfry
