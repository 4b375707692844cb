// Plans and sessions for GPUs on the fake driver, whose kernels are the CPU's or generated ones that were compiled for the host.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <belfry/executor/device/cuda/cuda_device_internal.h>
#include <belfry/frontends/session/session.h>

#include "fake_gpus.h"
#include "files.h"
#include "host_gpu.h"
#include "plans.h"

namespace belfry::test {

/// A net of the tests with gradients and updates.
Graph trained_in(const std::string& name, DType precision);
Graph without_requests(Graph graph);

class GpuPlans : public FakeGpus {
 protected:
  /// The CPU's kernels as those of GPUs, all but the ops that are left out.
  KernelTables tables(const std::set<std::string>& without = {});
  /// Generated kernels, compiled for the host, as those of GPUs.
  KernelTables generated_tables(const std::shared_ptr<HostGpu>& host);
  std::unique_ptr<Prepared> on_stream(const Kernel& kernel, const KernelRequest& r, std::unique_ptr<Prepared> host);
  /// Verified.
  std::shared_ptr<const PlacedGraph> placed(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, const std::string& devices, std::int64_t batch, const KernelTables& kernels);
  Devices open(const PlacedGraph& plan);
  /// The fake driver's library is NCCL's too, from now on.
  void find_nccl();
  /// Variables and fetched values after some steps, the last of which is traced and held to the plan.
  Tensors train(const std::shared_ptr<const Graph>& graph, const std::shared_ptr<const PlacedGraph>& plan, const KernelTables& kernels, const std::function<void()>& prepared = {});

  std::size_t steps = 4;      ///< the second records, the third launches what it recorded, the last is traced
  std::vector<bool> told;     ///< steps that are told the next one's feeds, and so change the staging buffer
  bool lost_feeds = false;    ///< which are overwritten as soon as the step has ended
  bool jointly = true;        ///< kernels that can be one launch say so
  bool recorded = true;       ///< what can be recorded is
  std::vector<std::vector<DeviceId>> peers;  ///< of clusters; none: nothing is known
  std::shared_ptr<CudaToolkit> toolkit_ = std::make_shared<CudaToolkit>();

 private:
  Folder libraries_;
};

/// What a session's users see, with two GPUs that work by themselves.
class GpuSessions : public GpuPlans {
 protected:
  GpuSessions() {
    environment.set("FAKE_CUDA_GPUS", "2");
    environment.set("FAKE_CUDA_WORKS", "1");
  }
  SessionOptions options();
  SessionOptions generated_options();  ///< with the kernels of `generated_tables`
};

}  // namespace belfry::test
