// Memory: liveness becomes offsets in one arena per memory space.
#pragma once

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

inline constexpr std::int64_t kAlignment = 64;
inline std::int64_t aligned_bytes(std::int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

/// Bytes that are live from `start` to `end`, both included.
struct Block {
  std::int64_t size = 0, start = 0, end = 0;
};
struct Fit {
  std::vector<std::int64_t> offsets;
  std::int64_t total = 0;
};
/// First fit in several orders (size, area, start); the smallest total is kept. Deterministic.
Fit fit(const std::vector<Block>& blocks);
/// The most bytes that are live at once: no arena can be smaller.
std::int64_t live_maximum(const std::vector<Block>& blocks);

/// Sets offsets of all outputs and scratch, frames of classes, groups of devices with their regions. Bytes are reused only
/// where every reader of the old value is on the writer's own stream. Variants have their kernels and scratch sizes.
void plan_memory(PlacedGraph& plan);

/// Groups of devices that hold the same values; a variant per group for every node outside the towers, one per class for
/// tower nodes. Called before kernels are chosen.
void set_groups(PlacedGraph& plan);

/// Bytes that a plan takes in a device's part of its space's arena.
struct DeviceBytes {
  std::int64_t state = 0, region = 0, kept = 0, transient = 0;
  std::int64_t total() const { return state + region + kept + transient; }
};
/// Of every device of the cluster; what names no device counts for none.
std::vector<DeviceBytes> device_bytes(const PlacedGraph& plan);

}  // namespace belfry
