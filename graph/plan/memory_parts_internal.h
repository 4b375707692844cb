// What frames and regions share while memory is planned: who reads what, which towers leave their slot to nobody, layouts of frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/memory_region_internal.h>
#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/readers.h>

namespace belfry {

/// Bytes of a frame and when they are in use: positions in the order of the tower's nodes on the device. Who knows that the tower
/// has passed `known` knows that nobody reads them any more.
struct FrameBlock {
  Slot slot;
  std::int64_t size = 0, start = 0, known = 0;
  std::int64_t until = 0;  ///< the last position at which the tower may not write over it
  ValueIndex joined = -1;  ///< what a join reads when it likes
  std::int64_t own = 0;    ///< `known` but for joins
  bool of_last = false;    ///< written by towers that leave their slot to nobody, and by no others
};

/// An output of a tower node, or its scratch (output -1), and its block.
struct FrameOwner {
  std::size_t node = 0;
  int output = 0;
  std::pair<int, int> key;
  std::size_t block = 0;
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
  std::vector<bool> kept;                               ///< per value: made once, read in each step
  std::vector<std::vector<bool>> last;                  ///< per device and tower: the tower leaves its slot to nobody
  std::vector<std::vector<FrameKey>> frames_on;         ///< per device
  std::vector<int> towers_on;                           ///< per device
  std::vector<int> joint, joint_until;                  ///< per node: joint_steps, and the order of the last step of them, else its own
  RegionCounts counts;
  NumberLists nodes_of_group;                           ///< those with buffers in the group's region
  std::vector<std::vector<int>> position;               ///< per class and node: in the order of the tower's nodes on its device
  std::map<FrameKey, std::vector<FrameBlock>> layouts;  ///< set by plan_frames
  std::map<FrameKey, std::vector<int>> nodes;           ///< likewise: a class's nodes on a device, in order
  std::vector<FrameOwner> owners;                       ///< of the layouts' blocks
  std::vector<Region> regions;                          ///< per group

  /// The device number of a vector's nodes inside a class; -1: the class does not run them.
  int local(int cls, int vector) const { return plan.classes[static_cast<std::size_t>(cls)].pattern[static_cast<std::size_t>(vector)].device; }
  /// The number that a device has inside the class of a tower; -1: the tower runs nothing there.
  int local_on(int cls, int tower, int device) const;
  /// Whether all towers of a device take turns in one frame.
  bool has_one_slot(int device) const;
};

/// Where frames begin on a device, behind its state.
struct DeviceFrames {
  struct One {
    std::pair<int, int> which;  ///< stream and place of the slot; a transient part's slot is -1
    std::int64_t base = 0;
    std::set<int> classes;      ///< of the towers that use it
  };
  std::vector<One> kept, transient;
  std::int64_t past = 0;
};
DeviceFrames device_frames(const PlacedGraph& plan, int device);

/// Offsets inside the frames of all classes.
void plan_frames(PlacedGraph& plan, MemoryParts& parts);
/// Frames of classes that share the slots of streams placed slot by slot as one, where that is less.
void pack_slots(PlacedGraph& plan, MemoryParts& parts);
/// What lies outside the towers and when it is live; the state's offsets.
void plan_regions(PlacedGraph& plan, MemoryParts& parts);
/// Joins that lie over one of their parts, other ops outside the towers over an input, where nobody reads that any more.
void set_over(const PlacedGraph& plan, MemoryParts& parts);
/// A device's frame is the largest of the classes that use it.
void set_frames(PlacedGraph& plan, const MemoryParts& parts);
/// Offsets of regions in the gaps of the frames and behind them. Where all frames have one slot, both are packed as one.
void place_regions(PlacedGraph& plan, MemoryParts& parts);

}  // namespace belfry
