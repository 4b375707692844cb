// Feeds on their way to devices that work by themselves: into pinned memory of the host, and on into memory of the device where they land.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include <belfry/executor/device/device.h>
#include <belfry/executor/launch.h>
#include <belfry/graph/host_tensor.h>
#include <belfry/graph/plan/landing.h>

namespace belfry {

/// Two buffers of each kind, in the arenas of the plan: while a run reads one, the feeds of the next are brought into the other. One thread brings them.
class Staging {
 public:
  /// Feeds land on a device, by a queue of their own; `memory` has room for both buffers.
  void land_on(int device, Landing landing, std::byte* memory, std::unique_ptr<Queue> queue);

  /// Before feeds are put into a buffer that no run reads any more: until what was put before has landed. It has where a run has read it; only after
  /// a failed run, or where other feeds come than were given ahead, is there anything to wait for.
  void settle();
  /// Into the buffer of the host, and from there to the devices, which may take its time. DeviceError as a queue's copy, of `busy_with()`.
  void put(const FeedBinding& feed, const HostTensor& value, int which);
  /// All that a run reads has been put: its steps wait for mark 0 of `queue`.
  void mark();

  /// Where a step of the device has byte 0 of the feed, of which only what it reads need be there.
  const std::byte* address(const FeedBinding& feed, int device, int which) const;
  /// By which feeds land on a device; null where its steps read the host's buffer.
  Queue* queue(int device) const;
  /// The device whose queue was given something last; -1: none was.
  int busy_with() const { return busy_with_; }
  /// What lands there.
  const Landing& landing(int device) const;

 private:
  struct Place {
    Landing landing;
    std::byte* memory = nullptr;
    std::unique_ptr<Queue> queue;
    const LandedFeed* find(ValueIndex feed) const;
    std::byte* at(const LandedFeed& feed, int which) const { return memory + which * landing.bytes + feed.at; }
  };

  std::map<int, Place> places_;  // by device
  int busy_with_ = -1;
};

}  // namespace belfry
