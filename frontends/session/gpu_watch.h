// Reads meters of GPUs while it is alive, on a thread of its own.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <belfry/executor/device/cuda/gpu_meter.h>

namespace belfry {

class GpuWatch {
 public:
  /// UserError where no thread can be started.
  explicit GpuWatch(std::unique_ptr<GpuMeter> meter);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  /// Those so far and one more, in the order of time.
  std::vector<GpuReading> readings();

 private:
  void watch();

  std::unique_ptr<GpuMeter> meter_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::vector<GpuReading> readings_;
  std::thread thread_;
};

}  // namespace belfry
