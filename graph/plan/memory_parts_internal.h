// What frames and regions share while memory is planned: who reads what, which towers leave their slot to nobody, layouts of frames.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

inline constexpr std::int64_t kForever = std::int64_t{1} << 40;

/// Bytes of a frame and when they are in use: positions in the order of the tower's nodes on the device. Who knows that the tower
/// has passed `known` knows that nobody reads them any more.
struct FrameBlock {
  Slot slot;
  std::int64_t size = 0, start = 0, known = 0;
};

/// A class on one of its local devices.
using FrameKey = std::pair<int, int>;

struct MemoryParts {
  explicit MemoryParts(const PlacedGraph& plan);

  const PlacedGraph& plan;
  Instances instances;
  std::vector<std::vector<int>> readers;                ///< per value
  std::vector<bool> joined;                             ///< per value: something outside the towers reads it
  std::vector<std::vector<bool>> last;                  ///< per device and tower: the tower leaves its slot to nobody
  std::vector<std::vector<FrameKey>> frames_on;         ///< per device
  std::vector<int> towers_on;                           ///< per device
  std::vector<std::vector<int>> position;               ///< per class and node: in the order of the tower's nodes on its device
  std::map<FrameKey, std::vector<FrameBlock>> layouts;  ///< set by plan_frames

  /// The device number of a vector's nodes inside a class; -1: the class does not run them.
  int local(int cls, int vector) const { return plan.classes[static_cast<std::size_t>(cls)].pattern[static_cast<std::size_t>(vector)].device; }
};


/// How many buffers of a node's values lie in a device's region. Equal spreads share one column, so that the cost does not grow with
/// nodes times devices.
class RegionCounts {
 public:
  RegionCounts(const PlacedGraph& plan, const std::vector<bool>& joined, const std::vector<std::vector<bool>>& last);
  std::vector<int> row(int device) const;
  int count(std::size_t node, int device) const;

 private:
  std::vector<int> of_node_;
  std::vector<std::map<int, int>> columns_;
};

/// Offsets inside the frames of all classes.
void plan_frames(PlacedGraph& plan, MemoryParts& parts);
/// Offsets of what lies outside the towers, in the gaps of the frames and behind them.
void plan_regions(PlacedGraph& plan, const MemoryParts& parts);

}  // namespace belfry
