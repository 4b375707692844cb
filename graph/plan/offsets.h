// Offsets for buffers that share an arena: a pure function of their sizes and lifetimes, the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

namespace belfry {

/// Bytes that are live from `start` to `end`, both included.
struct Block {
  std::int64_t size = 0, start = 0, end = 0;
};
struct Packing {
  std::vector<std::int64_t> offsets;
  std::int64_t peak = 0;   ///< bytes of the arena
  std::int64_t bound = 0;  ///< the most that are live at once: no arena can be smaller
};

/// Bytes that are not free.
struct Taken {
  std::int64_t from = 0, past = 0;
  bool operator<(const Taken& o) const { return from < o.from; }
};
/// The lowest place for so many bytes; sorts what is taken.
std::int64_t first_gap(std::vector<Taken>& taken, std::int64_t size);

/// Steps of a search for a smaller arena than the greedy ones: placings tried, never seconds.
inline constexpr std::int64_t kSearchSteps = 4'000;
/// More blocks than this are not searched for.
inline constexpr std::size_t kMostSearched = 600;

std::int64_t live_maximum(const std::vector<Block>& blocks);

/// First fit in several orders, then a search within `steps` (search_offsets), until the peak is `limit` or below; 0: the bound.
/// Where all sizes are multiples of an alignment, all offsets are.
Packing pack(const std::vector<Block>& blocks, std::int64_t limit = 0, std::int64_t steps = kSearchSteps);

/// Offsets within `limit`, or none where there are none or `steps` are spent; spent steps are taken off. Depth first over placings in
/// the order of their offsets, each block as low as it can be, with sections of time that are independent solved apart (Moffitt and
/// Fegade, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", 2023).
std::vector<std::int64_t> search_offsets(const std::vector<Block>& blocks, std::int64_t limit, std::int64_t& steps);

}  // namespace belfry
