// A device with memory and streams of its own, as the executor uses it. The host's memory and threads need none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <belfry/executor/device/arena.h>
#include <belfry/executor/device/event.h>

namespace belfry {

/// Work of a queue and of those that join it, recorded once and put on the queue as a whole (a CUDA graph).
class Captured {
 public:
  virtual ~Captured() = default;
};

/// What a queue's work is put before, where the device can choose: what all wait for, then what moves, then the rest.
enum class Urgency { computes, moves, joins };

/// A stream of a device that works by itself: what is put on it runs in order, later. One thread at a time puts work on it.
class Queue {
 public:
  virtual ~Queue() = default;
  /// What kernels launch on: a CUstream.
  virtual void* stream() const = 0;
  /// Bytes from anywhere to anywhere: this device, another one, the host. Pageable memory of the host has been read when it returns.
  virtual void copy(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
  /// The same of `rows` rows of so many bytes, which begin so many bytes apart: in one piece of work.
  virtual void copy_rows(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step, std::int64_t bytes, std::int64_t rows) = 0;
  /// Sets mark k of the queue behind what was put on it so far. A queue has as many as are set.
  virtual void mark(int k) = 0;
  /// What follows waits for mark k of another queue of the same backend, as it was set last.
  virtual void wait(const Queue& other, int k) = 0;
  /// What follows waits for all that was put on another queue of the same backend so far.
  virtual void join(Queue& other) = 0;
  /// Between the two nothing runs: what is put on this queue, and on those that join it, is recorded. They must be joined here before the end.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Captured> end_capture() = 0;
  virtual void launch(const Captured& captured) = 0;
  /// Signals the host's event once what was put on it so far is done.
  virtual void signal(Event& event, std::int64_t count) = 0;
  /// A time stamp behind what was put on it so far; `stamps` gives those since the last call, after `finish`, in nanoseconds of the
  /// steady clock, to which the first one ties the device's.
  virtual void stamp() = 0;
  virtual std::vector<std::int64_t> stamps() = 0;
  /// What the calling thread puts on queues between the two has that name, for tools that watch (NVTX).
  virtual void begin_range(const char* name) = 0;
  virtual void end_range() = 0;
  /// The calling thread works for its device from now on.
  virtual void enter() = 0;
  /// DeviceError if anything that was put on it has failed by now.
  virtual void check() = 0;
  /// The device can be used on: nothing that was put on the queue has failed by now.
  bool works() {
    try {
      check();
      return true;
    } catch (const DeviceError&) {
      return false;
    }
  }
  /// Until all is done. DeviceError if anything failed, or another device for which it may wait; the device is then lost.
  virtual void finish() = 0;
};

class Communicator;

class Device {
 public:
  virtual ~Device() = default;
  /// The calling thread prepares and launches kernels for this device from now on.
  virtual void enter() = 0;
  /// Filled as every arena is. DeviceError where there is no room.
  virtual Arena allocate(std::int64_t bytes, const std::string& space) = 0;
  /// Memory of the host that the device copies from and to without detours.
  virtual Arena allocate_host(std::int64_t bytes) = 0;
  /// A stream; `marks`: how many it will have, as far as is known.
  virtual std::unique_ptr<Queue> queue(int marks, Urgency urgency = Urgency::computes) = 0;
  /// The same as a queue's copy, done when it returns.
  virtual void copy(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
  /// Kernels on this device read the other's memory where it lies. Both are of one backend.
  virtual bool reads(const Device& other) const { return this == &other; }
  /// A library's collectives over devices of this backend, by name, which are its ranks in their order. DeviceError where there are none.
  virtual std::shared_ptr<Communicator> communicator(const std::vector<std::pair<std::string, Device*>>&) { throw DeviceError("its backend has no library of collectives"); }
};

/// By name: "gpu:0".
using Devices = std::map<std::string, std::shared_ptr<Device>>;

/// Copies now. Null: the host's memory.
inline void copy_bytes(std::byte* to, Device* to_device, const std::byte* from, Device* from_device, std::int64_t bytes) {
  if (!bytes) return;
  if (Device* d = to_device ? to_device : from_device) d->copy(to, from, bytes);
  else std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace belfry
