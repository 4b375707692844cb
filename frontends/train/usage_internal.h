// What this process takes of the machine.
#pragma once

#include <chrono>
#include <cstdint>

namespace belfry {

struct Usage {
  std::chrono::steady_clock::time_point at = std::chrono::steady_clock::now();
  double cpu_seconds = 0;         ///< of all threads
  std::int64_t memory_bytes = 0;  ///< resident; 0 where the system does not say
};

Usage usage_now();
/// Cores that were busy between two.
double cores_between(const Usage& from, const Usage& to);

}  // namespace belfry
