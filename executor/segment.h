// A part of a host thread's work on a GPU that is put on its queues as a whole.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/device/device.h>
#include <belfry/graph/plan/lanes.h>

namespace belfry {

/// What follows what is known of a segment by bits, as many for each task: 2 MiB.
inline constexpr std::size_t kLongestSegment = 4096;

/// Tasks that are launched as one once they were recorded; one that cannot be recorded stands alone.
struct Segment {
  std::size_t first = 0, past = 0;           ///< of the thread's tasks
  bool captured = false, feeds = false;
  Queue* origin = nullptr;                   ///< of its first task
  Queue* landed = nullptr;                   ///< by which the feeds that it reads land; null: it reads none, or those of the host
  std::string name = {};
  Precedence order = {};                     ///< of its tasks, by the bytes that they touch
  std::vector<int> place = {};               ///< per task, the one whose launch it is part of: the last of them
  bool prepared = false;                     ///< those launches can be recorded
  std::unique_ptr<Captured> graphs[2] = {};  ///< by the buffer that it reads, where it reads feeds
};

}  // namespace belfry
