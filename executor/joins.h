// Joining what towers hold: the fixed binary tree in one pass, rows side by side, stacks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <belfry/graph/shape.h>

namespace belfry {

/// Towers [low, high) whose joined value is one part.
struct JoinPart {
  int low = 0, high = 1;
  LocalType type;
};

/// Joins parts: "sum" or "max" along the tree over `towers` (those past the last part are absent), "mean" (the sum over the
/// number of `present` towers), "concat_rows" along `axis`, "stack", or "same". Made once; running it takes no memory.
class Join {
 public:
  /// UserError for what the dtype cannot be joined by.
  Join(std::string how, int axis, int towers, int present, std::vector<JoinPart> parts, LocalType type);
  /// `data`: the parts, in their order; `out` has the join's type.
  void operator()(std::span<const std::byte* const> data, std::byte* out);

 private:
  void reduce(std::span<const std::byte* const> data, std::byte* out);
  void put_side_by_side(std::span<const std::byte* const> data, std::byte* out) const;

  std::string how_;
  int axis_ = 0, present_ = 1;
  std::vector<JoinPart> parts_;
  LocalType type_;
  std::vector<int> tree_;          // n ≥ 0 pushes part n, -1 joins the top two
  std::vector<const void*> top_;   // of the stack
  std::vector<std::byte> blocks_;  // what is on it
};

/// Rows [first, first + count) of `from` along an axis.
void slice_rows(const LocalType& from, const std::byte* data, int axis, std::int64_t first, std::int64_t count, std::byte* out);

}  // namespace belfry
