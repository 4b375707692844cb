// A GPU's context as its queues share it: errors, what has failed, and waits that end though another GPU fails.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/graph/device_id.h>
#include <belfry/graph/error.h>

namespace belfry {

/// The primary context of a GPU, held while anything of it is alive. Any thread may call.
class CudaContext {
 public:
  /// One per GPU and toolkit, so that logical devices share it. GPUs whose contexts are there read each other's memory where the hardware
  /// lets them. MissingError where none can be made.
  static std::shared_ptr<CudaContext> of(const std::shared_ptr<CudaToolkit>& toolkit, const DeviceId& id, std::chrono::milliseconds patience);
  CudaContext(std::shared_ptr<CudaToolkit> toolkit, const DeviceId& id, std::chrono::milliseconds patience);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  /// DeviceError for any code but success.
  void check(CUresult code, const char* call) const;
  /// The same of calls that tell of work: the GPU has failed then.
  void check_work(CUresult code, const char* call);
  /// Current for this thread from now on.
  void enter();
  /// For what frees: a lost device has nothing left to free.
  bool enter_if_alive() const noexcept;
  /// Its work waits for what another GPU does.
  void waits_for(const std::shared_ptr<CudaContext>& other);
  /// DeviceError if anything on the stream has failed by now, or is no longer waited for.
  void look(CUstream stream);
  /// Until a stream's work is done. DeviceError as above, and where it has not ended so long after one failed for which it may wait.
  void finish(CUstream stream);
  /// A GPU that is in use here has failed: another's work may wait for it for ever, and for memory anywhere. Then nothing is freed.
  bool lost() const { return toolkit_->failed_gpus > 0; }

  const CudaDriver& driver() const { return d_; }
  const std::shared_ptr<CudaToolkit>& toolkit() const { return toolkit_; }
  CUdevice device() const { return device_; }

 private:
  std::vector<std::shared_ptr<CudaContext>> before() const;
  std::string waits_in_vain_for() const;
  std::string gives(CUresult code, const char* call) const;
  void fail(const std::string& why);
  DeviceError given_up() const;

  std::shared_ptr<CudaToolkit> toolkit_;
  const CudaDriver& d_;
  std::string name_;
  std::chrono::milliseconds patience_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::atomic<bool> failed_{false}, waits_{false};
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<CudaContext>> before_;  // GPUs that it has waited for
  std::string failed_before_;                       // of those the one after which it was given up
  std::string first_;                               // what it failed of itself
};

}  // namespace belfry
