// What a program has looked up before its first run: launches, and where feeds, results and variables go.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <belfry/executor/device/arena.h>
#include <belfry/executor/device/device.h>
#include <belfry/executor/device/faults.h>
#include <belfry/executor/kernel.h>
#include <belfry/graph/plan/bound_plan.h>

namespace belfry {

/// One launch: all that a step needs, looked up before the first run.
struct Launch {
  const Step* step = nullptr;
  std::unique_ptr<Prepared> kernel;
  Arguments arguments;
  std::vector<std::size_t> feed_inputs;  ///< inputs whose address is that of a feed
  int thread = 0;
  int update = -1;                       ///< its number among the launches that write state
  bool signals = false;                  ///< a step of another thread waits for it
};

/// A wait between streams of devices that work by themselves: nobody of the host waits.
struct QueueWait {
  Queue* queue = nullptr;
  int mark = 0;
  int stream = 0, count = 0;             ///< after so many steps of this stream
  int task = -1;                         ///< of the same thread: the place of the task that sets it; -1: another thread sets it
};

/// What a launch on such a stream has besides.
struct Drive {
  Queue* queue = nullptr;
  std::vector<QueueWait> waits;
  int mark = -1;                         ///< set behind it; -1: nobody waits for it on a device
  bool mark_for_others = false;          ///< queues of other threads among them
  bool feeds = false;                    ///< it reads a feed, in one buffer or the other
  Queue* landed = nullptr;               ///< whose mark 0 it waits for then; null: it reads the host's memory
  const char* name = "";                 ///< of its node, with the tower: "tower_1/conv"
};

/// A launch as its host thread meets it: all that the way from one kernel to the next touches, side by side.
struct Task {
  Prepared* kernel = nullptr;
  const Arguments* arguments = nullptr;
  const StepWait* waits = nullptr;       ///< on streams of other threads; the thread's own order covers the rest
  int wait_count = 0;
  int stream = 0, index = 0;
  int update = -1;
  bool signals = false;
  const Drive* drive = nullptr;          ///< null: it is computed on the thread itself
  const Step* step = nullptr;
};

/// What is made before a step where variables have changed, per host thread in order.
struct OnceLaunches {
  std::vector<Launch> launches;          ///< as BoundPlan::once
  std::deque<Drive> drives;
  std::vector<std::vector<Task>> tasks;
  std::int64_t made = -1;                ///< of which state: StateStore::changes
};

/// What a run looks up once: where a feed's address goes, where a result lies, which launch writes which variables.
struct FeedBinding {
  std::string name;
  ValueIndex value = -1;
  LocalType type;
  std::vector<const std::byte**> addresses;  ///< of launches that read it where the caller has it
  struct Staged {
    const std::byte** address = nullptr;
    const Step* reader = nullptr;
  };
  std::vector<Staged> staged = {};           ///< of those on queues of devices, which read a copy
  std::array<std::byte*, 2> pinned = {};     ///< where the copy lies in the host's memory: while a run reads one, the next is brought into the other
};
/// Words in a device's memory that its kernels lower where they find fault with their input; all of one host thread.
struct FaultWords {
  std::optional<Arena> words, seen;      ///< the device's, and a copy in the host's pinned memory
  std::vector<std::pair<const Task*, FindsFaults*>> of;
};
struct ResultBinding {
  std::string name;
  const Step* fetch = nullptr;
  BufferRef buffer() const { return fetch->writes[0][0].buffer; }
};
struct UpdateBinding {
  int stream = 0, index = 0;
  std::vector<ValueIndex> variables;
};

}  // namespace belfry
