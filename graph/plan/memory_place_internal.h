// Placing regions: what the places around frames and those of frames and regions as one have in common.
#pragma once

#include <cstddef>
#include <vector>

#include <belfry/graph/plan/memory_meets_internal.h>
#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/memory_region_internal.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Above so many pairs of buffers they are not looked at pair by pair: the region lies behind the frames.
inline constexpr std::size_t kMostPairs = std::size_t{1} << 24;

/// Items with bytes of their own: what is written over something lies where that does.
std::vector<std::size_t> own_items(const Region& region);

/// The items first, then the blocks of the device's frames, then those that joins write over once more.
Rows rows_of(const MemoryParts& parts, std::size_t group);

/// A block of a frame where it lies for towers in one slot, or in any (`rank` < 0). `k`: its class among those of the device.
struct FrameBytes {
  std::int64_t from = 0, past = 0;
  std::size_t row = 0, k = 0;
  const FrameBlock* block = nullptr;
  int rank = 0;
  bool covered = false;  ///< a join writes over it
};
std::vector<FrameBytes> frame_bytes(const PlacedGraph& plan, const MemoryParts& parts, std::size_t group, const Rows& rows);

/// First fit around the frames with a place for each buffer that towers in turn make for joins, by when it is in use, of the largest of
/// these; kept if the group's region ends lower than it does. Where that leaves much above what is in use at once, and no other group
/// has frames of these classes, of frames and regions as one, with a place for each block in each slot. Looks at so many pairs of
/// buffers, and gives how many are left.
std::size_t place_apart(PlacedGraph& plan, MemoryParts& parts, std::size_t group, const Rows& rows, bool frames_are_its_own, std::size_t pairs);

/// First fit of frames and regions of these groups as one, in several orders, then in orders changed step by step; the smallest is kept
/// if it is smaller than what there is. All their frames have one slot. Looks at so many pairs of buffers, and gives how many are left.
std::size_t place_jointly(PlacedGraph& plan, MemoryParts& parts, const std::vector<std::size_t>& groups, std::size_t pairs);

}  // namespace belfry
