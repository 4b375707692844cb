// A library's collectives over devices of one process: each rank calls from its own host thread, all in one order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <belfry/executor/device/device.h>
#include <belfry/graph/dtype.h>

namespace belfry {

/// What one rank gives to a collective and gets from it. All ranks name the same call, dtype, count and root.
struct Collective {
  enum class What : std::uint8_t { all_reduce, reduce, broadcast };
  What what = What::all_reduce;       ///< sums over ranks, in an order of the library's own: they promise no bits
  DType dtype = f32;
  std::int64_t count = 0;             ///< elements
  int root = 0;                       ///< who gets a reduce, and gives a broadcast
  const std::byte* from = nullptr;    ///< null: of a broadcast that another rank gives
  std::byte* to = nullptr;            ///< null: of a reduce that another rank gets
};

/// Any thread may cancel, renew and check.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// Waits on the host until all ranks have come with the same collectives, then puts them on the rank's queue as one group.
  /// DeviceError where ranks differ, one does not come in time, or the library fails: then the communicator is aborted for all.
  virtual void run(int rank, std::span<const Collective> group, Queue& queue) = 0;
  /// A step failed elsewhere: ranks that wait for others give up, with a DeviceError, until `renew`.
  virtual void cancel() noexcept = 0;
  virtual void renew() noexcept = 0;
  /// DeviceError with what aborted it. What was under way then has ended, and has computed nothing.
  virtual void check() const = 0;
};

}  // namespace belfry
