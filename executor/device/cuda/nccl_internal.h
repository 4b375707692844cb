// NCCL as a Communicator: opened when a plan names it, watched, and aborted on an error or where a rank stays away.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/device/communicator.h>
#include <belfry/executor/device/cuda/toolkit_internal.h>

namespace belfry {

struct NcclRank {
  Device* device = nullptr;
  std::string name;                   ///< "gpu:1"
};

/// The ranks in their order, each on a GPU of its own. DeviceError where NCCL is not there, is of another version, or does not start.
/// `patience`: how long a rank waits for the others, and a collective on the GPUs for its end.
std::shared_ptr<Communicator> open_nccl(const std::shared_ptr<CudaToolkit>& toolkit, std::vector<NcclRank> ranks, std::chrono::milliseconds patience = std::chrono::minutes(10));

}  // namespace belfry
