// What frames and regions share while memory is planned: who reads what, which towers leave their slot to nobody, layouts of frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/readers.h>

namespace belfry {

inline constexpr std::int64_t kForever = std::int64_t{1} << 40;

/// Bytes of a frame and when they are in use: positions in the order of the tower's nodes on the device. Who knows that the tower
/// has passed `known` knows that nobody reads them any more.
struct FrameBlock {
  Slot slot;
  std::int64_t size = 0, start = 0, known = 0;
  std::int64_t until = 0;  ///< the last position at which the tower may not write over it
  ValueIndex joined = -1;  ///< what a join reads when it likes
  std::int64_t own = 0;    ///< `known` but for joins
};

/// An output of a tower node, or its scratch (output -1), and its block.
struct FrameOwner {
  std::size_t node = 0;
  int output = 0;
  std::pair<int, int> key;
  std::size_t block = 0;
};

/// What is written over: a part in a frame (`k`: its class among those of the device), or an item of the same region.
struct Over {
  int item = -1, k = -1;
  std::size_t block = 0;
  explicit operator bool() const { return item >= 0 || k >= 0; }
};

/// A buffer outside the frames: of the main stream's step `written`, or a part that towers make for a join (`written` < 0).
struct RegionItem {
  std::size_t node = 0, output = 0;
  bool scratch = false;
  std::int64_t each = 0, size = 0;     ///< bytes of one buffer and of all that lie side by side
  std::int64_t written = -1;           ///< order of the step of the main stream
  std::int64_t last_read = -1;         ///< order of the last step of the main stream that reads it; kForever: others may read it at any time
  std::vector<std::int64_t> read_by;   ///< per class here, the last position at which a tower reads it
  std::vector<std::int64_t> after;     ///< per class here, what all towers have passed when it is written
  std::int64_t gone = kForever;        ///< the position from which on the only tower here may write over it
  Over over;                           ///< what it lies over; its life is then part of what lies there first
  std::int64_t offset = 0;
};

/// Numbers of some values: a region knows a few of thousands.
class JoinedReads {
 public:
  void set(std::vector<std::pair<std::size_t, std::int64_t>> reads);
  std::int64_t operator[](std::size_t value) const;

 private:
  std::vector<std::pair<std::size_t, std::int64_t>> reads_;  // by value
};

/// What lies outside the frames of a group's devices.
struct Region {
  int device = 0;                        ///< the first of the group
  std::vector<RegionItem> items;
  JoinedReads joined_read;               ///< order of the last step of this main stream that reads a value of a frame here, if none elsewhere does, else kForever
  std::vector<std::pair<int, int>> host;           ///< per class here, the stream (of those with towers) and the place of the slot in whose frame joins may write; -1: none
  std::vector<std::map<std::size_t, int>> taken;   ///< per class here, block → the item that is written over it first

  /// What joins write over a block of the frame that begins at this place of a stream; null: nothing does.
  const RegionItem* over(std::size_t k, std::size_t block, std::pair<int, int> frame) const {
    if (k >= host.size() || host[k] != frame) return nullptr;
    auto at = taken[k].find(block);
    return at == taken[k].end() ? nullptr : &items[static_cast<std::size_t>(at->second)];
  }
};

/// A class on one of its local devices.
using FrameKey = std::pair<int, int>;

/// How many buffers of a node's values lie in a device's region. Equal spreads share one column, so that the cost does not grow with
/// nodes times devices.
class RegionCounts {
 public:
  RegionCounts(const PlacedGraph& plan, const std::vector<bool>& joined, const std::vector<std::vector<bool>>& last);
  std::vector<int> row(int device) const;
  int count(std::size_t node, int device) const;
  /// Nodes by the groups in whose region they have buffers.
  NumberLists by_group(const PlacedGraph& plan) const;

 private:
  using Column = std::vector<std::pair<int, int>>;  // devices, ascending, and how many
  static int at(const Column& column, int device);
  std::vector<int> of_node_;
  std::vector<Column> columns_;
};

struct MemoryParts {
  MemoryParts(const PlacedGraph& plan, const Instances& instances, const NumberLists& readers);

  const PlacedGraph& plan;
  const Instances& instances;
  const NumberLists& readers;                           ///< per value
  std::vector<bool> joined;                             ///< per value: something outside the towers reads it
  std::vector<std::vector<bool>> last;                  ///< per device and tower: the tower leaves its slot to nobody
  std::vector<std::vector<FrameKey>> frames_on;         ///< per device
  std::vector<int> towers_on;                           ///< per device
  RegionCounts counts;
  NumberLists nodes_of_group;                           ///< those with buffers in the group's region
  std::vector<std::vector<int>> position;               ///< per class and node: in the order of the tower's nodes on its device
  std::map<FrameKey, std::vector<FrameBlock>> layouts;  ///< set by plan_frames
  std::map<FrameKey, std::vector<int>> nodes;           ///< likewise: a class's nodes on a device, in order
  std::vector<FrameOwner> owners;                       ///< of the layouts' blocks
  std::vector<Region> regions;                          ///< per group

  /// The device number of a vector's nodes inside a class; -1: the class does not run them.
  int local(int cls, int vector) const { return plan.classes[static_cast<std::size_t>(cls)].pattern[static_cast<std::size_t>(vector)].device; }
};

/// Offsets inside the frames of all classes.
void plan_frames(PlacedGraph& plan, MemoryParts& parts);
/// What lies outside the towers and when it is live; the state's offsets.
void plan_regions(PlacedGraph& plan, MemoryParts& parts);
/// Joins that lie over one of their parts, other ops outside the towers over an input, where nobody reads that any more.
void set_over(const PlacedGraph& plan, MemoryParts& parts);
/// A device's frame is the largest of the classes that use it.
void set_frames(PlacedGraph& plan, const MemoryParts& parts);
/// Offsets of regions in the gaps of the frames and behind them. Where all frames have one slot, both are packed as one.
void place_regions(PlacedGraph& plan, MemoryParts& parts);

}  // namespace belfry
