// Parts for joins tower by tower: a row of bytes for each tower, the last tower's lowest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <belfry/graph/plan/memory_parts_internal.h>

namespace belfry {

/// Bytes of frames, and how many rows are written before nobody needs them any more.
struct RowObstacle {
  std::int64_t from = 0, past = 0;
  int early = 0;
};

/// The lowest place of `count` rows that lie last to first, so that those which are written early are above the others.
std::int64_t lowest_rows(const std::vector<RowObstacle>& taken, std::int64_t row, int count);

/// What towers make for joins where they take turns in the slots of one stream: of several classes their parts, a tower's in one row, so that
/// the rows of later towers may lie over what the frames of larger towers before them held; or sums in stacks, a level's in one row, of which
/// the last begin when the first towers are done.
class TowerRows {
 public:
  TowerRows(const PlacedGraph& plan, const MemoryParts& parts, std::size_t group);

  bool empty() const { return members_.empty(); }
  const std::vector<std::size_t>& members() const { return members_; }  ///< items of the region
  int count() const { return count_; }
  std::int64_t row() const { return row_; }
  /// Rows that are written before the last tower of class k here is done with a block of its frame, in a slot (`which`: as DeviceFrames').
  int early(std::size_t k, const FrameBlock& block, std::pair<int, int> which);
  /// Gives the members their rows at `offset`.
  void set(Region& region, std::int64_t offset) const;

 private:
  struct Tower {
    int number = 0, cls = 0, rank = 0;
    int released = 0;                             ///< the last entry before which the next tower of the slot does not begin
    std::map<std::pair<int, int>, int> entry_of;  ///< by epoch and phase
  };
  std::vector<Tower> towers_on(int device) const;
  std::vector<int> begins_on(int device, const std::vector<Tower>& towers, const Region& region) const;
  void add_members(const Region& region, bool stacks);

  const PlacedGraph& plan_;
  const MemoryParts& parts_;
  std::size_t g_;
  bool stacks_ = false;
  std::vector<std::size_t> members_;
  std::vector<std::int64_t> in_row_;            ///< per member
  std::int64_t row_ = 0;
  int count_ = 0;
  std::vector<std::vector<Tower>> towers_;      ///< per device of the group
  std::vector<std::vector<int>> begins_;        ///< per device and row, the entry that writes it first
  std::map<std::tuple<std::size_t, std::int64_t, std::pair<int, int>>, int> known_;
};

}  // namespace belfry
