// Memory: liveness becomes offsets in one arena per memory space.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/readers.h>

namespace belfry {

inline constexpr std::int64_t kAlignment = 64;
inline std::int64_t aligned_bytes(std::int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

struct MemoryParts;

/// Sets offsets of all outputs and scratch, frames of classes, regions of groups. Bytes are reused only where every reader of the old
/// value is on the writer's own stream, or happens before by a wait that stands anyway. Variants have their kernels and scratch sizes.
void plan_memory(PlacedGraph& plan, MemoryParts& parts);

/// Groups of devices that hold the same values and frames; a variant per group for every node outside the towers, one per class for
/// tower nodes. Called before kernels are chosen; gives what memory is planned with, which refers to all that it is given.
std::shared_ptr<MemoryParts> set_groups(PlacedGraph& plan, const Instances& instances, const NumberLists& readers);

/// Per device and tower: the tower is the last in its frame slot there, so what it makes for a join behind the towers stays in its
/// frame; other towers have buffers of their own for that, in the region.
std::vector<std::vector<bool>> last_in_slots(const PlacedGraph& plan);

inline bool is_last_in_slot(const std::vector<std::vector<bool>>& last, int tower, int device) {
  const auto d = static_cast<std::size_t>(device), t = static_cast<std::size_t>(tower);
  return d < last.size() && t < last[d].size() && last[d][t];
}
/// Per vector and tower: its number among those of its device that leave their slot to another, by which what they make for joins lies.
std::vector<std::vector<int>> region_ranks(const PlacedGraph& plan, const std::vector<std::vector<bool>>& last);

/// Per slot of a stream, its place among the stream's frames: slots of larger towers lie first, of those the ones that are left earlier.
std::vector<int> slot_ranks(const PlacedGraph& plan, const PlanStream& stream);

/// Bytes that a plan takes in a device's part of its space's arena: the region lies in the gaps of the frames, `region` is what it
/// takes besides; behind all of it lie the two buffers in which feeds land (graph/plan/landing.h), on the host those from which its driver carries them.
struct DeviceBytes {
  std::int64_t state = 0, region = 0, kept = 0, transient = 0, landing = 0;
  std::int64_t total() const { return state + region + kept + transient + landing; }
};
/// Of every device of the cluster; what names no device counts for none.
std::vector<DeviceBytes> device_bytes(const PlacedGraph& plan);
std::vector<std::int64_t> total_bytes(const PlacedGraph& plan);

}  // namespace belfry
