// Where the frames of a stream of towers lie on its device.
#pragma once

#include <cstdint>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// From the begin of the stream's frames: kept parts by the rank of their slot, each as far from the next as the largest class that uses
/// the slot wants. Transient parts begin where the last kept part does.
struct StreamFrames {
  std::vector<std::int64_t> kept;
  std::int64_t kept_past = 0, past = 0;  ///< behind the kept parts, behind all
  std::int64_t transient() const { return kept.empty() ? 0 : kept.back(); }
};

/// Of the frames that classes have; none for a main stream.
StreamFrames stream_frames(const PlacedGraph& plan, const PlanStream& stream);

}  // namespace belfry
