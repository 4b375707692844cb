// Where buffers lie: what a plan says of nodes, towers and devices as bytes of a device's part of its space's arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/stream_frames.h>

namespace belfry {

/// A device's part: state, then the frames stream by stream, in whose gaps and behind which the region lies. All throws UserError
/// ("unbound: …") where the plan does not say it.
class BufferPlaces {
 public:
  explicit BufferPlaces(const PlacedGraph& plan);
  explicit BufferPlaces(PlacedGraph&&) = delete;  // it reads the plan: keep it

  /// What a node is in a tower (-1: outside of them), or on a device.
  const Variant& variant(int node, int tower, int device) const;
  int class_of(int tower) const;
  /// Of output k of a node in a tower, for a device's piece that begins with a tower, or of a shared node (part -1).
  Slot slot(int node, std::size_t k, int part, int device) const;
  /// Bytes from the begin of the device's part; of the user's feed 0.
  std::int64_t at(const Slot& slot, const PlanNode& node, int part, int device) const;
  std::int64_t at(int node, std::size_t k, int part, int device) const { return at(slot(node, k, part, device), plan_.nodes[static_cast<std::size_t>(node)], part, device); }

  /// Of what joins, and nodes on devices, read or make; `pieces_on`: those of a device.
  const std::vector<Piece>& pieces(int owners) const { return owned(owners).pieces; }
  const std::vector<Piece>& pieces_on(int owners, int device) const;
  const Stacks& stacks() const { return stacks_; }

 private:
  struct FrameSlot {
    int stream = 0, rank = 0;
  };
  struct Owned {
    std::vector<Piece> pieces;
    std::map<int, std::vector<Piece>> on;  ///< by device
    std::vector<int> rank;                 ///< by a piece's first tower, its number among those of its device
  };
  const Owned& owned(int owners) const;
  std::size_t group_of(int device) const;
  const DeviceGroup& group(int device) const { return plan_.groups[group_of(device)]; }
  int rank(const PlanNode& n, int part) const;
  std::string name(int device) const { return to_string(plan_.cluster.devices[static_cast<std::size_t>(device)].id); }

  const PlacedGraph& plan_;
  Stacks stacks_;
  std::vector<std::vector<bool>> last_;                             // last_in_slots
  std::vector<std::vector<int>> rank_;                              // region_ranks
  std::map<int, int> class_of_, group_of_;                          // by tower, by device
  std::map<int, Owned> owned_;                                      // by owners
  std::map<int, std::pair<std::int64_t, StreamFrames>> frames_of_;  // by stream: where its frames begin, and they
  std::map<std::pair<int, int>, FrameSlot> slot_of_;                // by tower and device
};

}  // namespace belfry
