// Where the GPU tests run: this machine's GPUs, or, where BELFRY_GPU_TESTS is "host", the fake driver with generated kernels on the host.
#pragma once

#include <memory>
#include <string>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/executor/device/device.h>
#include <belfry/frontends/session/library.h>
#include <belfry/graph/device_id.h>

namespace belfry::test {

struct Machine {
  std::string why;                         ///< there is none
  bool real = false;
  std::shared_ptr<CudaToolkit> toolkit = {};
  std::shared_ptr<const Library> library = {};  ///< kernels["gpu"] are those that run there

  std::shared_ptr<Device> open(const DeviceId& device) const;
  /// Of the first GPU, as the driver says.
  std::size_t free_bytes() const;
  /// Behind a fault nothing runs on a GPU of this process.
  bool alive() const;
};
const Machine& machine();

}  // namespace belfry::test
