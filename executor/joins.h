// Joining what towers hold: the fixed binary tree in one pass, rows side by side, stacks.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/shape.h>

namespace belfry {

/// Towers [low, high) whose joined value lies at `data`.
struct JoinPart {
  int low = 0, high = 1;
  LocalType type;
  const std::byte* data = nullptr;
};

/// out = the parts joined: "sum" or "max" along the tree over `towers` (those past the last part are absent), "mean" (the
/// sum over the number of `present` towers), "concat_rows" along `axis`, "stack", or "same". `out` has type `type`.
void join(const std::string& how, int axis, int towers, int present, const std::vector<JoinPart>& parts, const LocalType& type, std::byte* out);

/// Rows [first, first + count) of `from` along an axis.
void slice_rows(const LocalType& from, const std::byte* data, int axis, std::int64_t first, std::int64_t count, std::byte* out);

}  // namespace belfry
