// When towers in turn use bytes on their device: blocks of their frames, and what each of them makes for joins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <belfry/graph/plan/memory_parts_internal.h>

namespace belfry {

/// Moments of a device's stream of towers between which bytes are in use, first and last: ascending and apart.
using Uses = std::vector<std::pair<std::int64_t, std::int64_t>>;
bool at_once(const Uses& x, const Uses& y);

/// The only stream of towers on a device; null: there are several, or none.
const PlanStream* only_stream(const PlacedGraph& plan, int device);

/// A buffer of an item of a region: what a tower makes for joins, or a level of a stack of sums.
struct TowerPart {
  std::int64_t size = 0;
  std::vector<Uses> uses;  ///< per device of the group
};

/// The order in which towers use a group's devices, where each of these has a single stream of several towers.
class TowersInTurn {
 public:
  TowersInTurn(const PlacedGraph& plan, const MemoryParts& parts, std::size_t group);

  static constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

  bool empty() const { return turns_.empty(); }
  std::size_t devices() const { return turns_.size(); }
  /// The buffers of an item that towers make.
  std::vector<TowerPart> parts(std::size_t item) const;
  /// Of what lies outside the towers, per device: from what its stream of towers has passed when it is written to before it is known here that nobody reads it.
  std::vector<Uses> outside(const RegionItem& item) const;
  /// Per device, when towers of class k here use a block of their frames in a slot (`rank` < 0: in any).
  const std::vector<Uses>& uses(std::size_t k, const FrameBlock& block, int rank);

 private:
  struct Tower {
    int number = 0;
    FrameKey key;                                 ///< of its frame here: towers of one class may have a device under several numbers
    int rank = 0;
    bool last = false;                            ///< leaves its slot to nobody
    int released = 0;                             ///< the last entry before which the next tower of the slot does not begin
    std::map<std::pair<int, int>, int> entry_of;  ///< by epoch and phase
    std::int64_t begin(const PlanNode& n, std::int64_t position) const;
    std::int64_t end(const PlanNode& n, std::int64_t position) const;
  };
  std::vector<Tower> towers_on(int device) const;
  Uses uses_on(const std::vector<Tower>& towers, std::size_t k, const FrameBlock& block, int rank) const;
  std::int64_t position(const Tower& t, std::size_t node) const { return parts_.position[static_cast<std::size_t>(t.key.first)][node]; }

  const PlacedGraph& plan_;
  const MemoryParts& parts_;
  std::size_t g_;
  std::vector<std::vector<Tower>> turns_;         ///< per device of the group, by number
  std::map<std::tuple<std::size_t, std::int64_t, std::int64_t, std::int64_t, bool, bool, int>, std::vector<Uses>> known_;
};

}  // namespace belfry
