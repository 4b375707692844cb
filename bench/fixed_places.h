// How many bytes buffers with fixed places need at the least: those of which every two can be in use at once.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <belfry/graph/plan/bound_plan.h>

namespace belfry {

/// A live maximum is of one order at a time. Fixed places must serve all of them: where nothing makes a tower wait for its neighbour, its
/// bytes lie beside all that the neighbour may not have read, in whichever order both go on.
class FixedPlaces {
 public:
  explicit FixedPlaces(const BoundPlan& bound);

  /// Per device: of the buffers that are in use at its fullest moments in the order of `legal_order`, or those of its streams, each at its own,
  /// and all more that can be at once with each of them, the largest first. What steps write in place counts once.
  std::vector<std::int64_t> least_bytes() const;

 private:
  struct Buffer {
    std::int64_t bytes = 0, at = 0;
    std::pair<int, int> written;  ///< stream and step, from 1
    std::map<int, int> used;      ///< by stream, the last step
  };
  using Numbers = std::vector<std::size_t>;

  void set_clocks(const std::vector<std::pair<int, int>>& order);
  void set_buffers(const std::vector<std::pair<int, int>>& order);
  bool before(const Buffer& x, const Buffer& y) const;
  std::vector<Numbers> fullest(const std::vector<Buffer>& all, const Numbers& some, std::size_t count) const;
  std::int64_t least_bytes_of(const std::vector<Buffer>& all) const;

  const BoundPlan& bound_;
  std::vector<std::vector<std::int64_t>> place_;       ///< of steps in the order
  std::vector<std::vector<std::vector<int>>> clocks_;  ///< per step, how many of every stream's have ended when it begins
  std::vector<std::vector<Buffer>> buffers_;           ///< per device
};

}  // namespace belfry
