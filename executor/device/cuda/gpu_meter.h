// How busy GPUs are and how full their memory is, asked now and then while something runs.
#pragma once

#include <cstdint>
#include <vector>

namespace belfry {

struct GpuReading {
  int gpu = 0;                       ///< as gpu:N
  std::int64_t at_ns = 0;            ///< of the steady clock
  int busy = -1, memory_busy = -1;   ///< percent of the driver's last period in which a kernel ran, or memory was read or written; -1: it cannot say
  std::int64_t used_bytes = -1;      ///< of the whole GPU, whoever uses them
  double watts = -1;
};

class GpuMeter {
 public:
  virtual ~GpuMeter() = default;
  /// Adds a reading of each of its GPUs. Any one thread at a time.
  virtual void read(std::vector<GpuReading>& out) = 0;
};

}  // namespace belfry
