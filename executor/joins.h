// Joining what towers hold: the fixed binary tree in one pass, rows side by side, stacks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <belfry/executor/join_request.h>
#include <belfry/graph/shape.h>

namespace belfry {

/// Joins parts. Made once; running it takes no memory.
class Join {
 public:
  /// UserError for what the dtype cannot be joined by.
  Join(JoinRequest request, LocalType type);
  /// `data`: the parts, in their order; `out` has the join's type.
  void operator()(std::span<const std::byte* const> data, std::byte* out);

 private:
  void reduce(std::span<const std::byte* const> data, std::byte* out);

  JoinRequest request_;
  LocalType type_;
  std::vector<int> tree_;
  std::vector<const void*> top_;   // of the stack
  std::vector<std::byte> blocks_;  // what is on it
};

/// JoinRequest::tree of a sum. InternalError where a tower that is present has no part.
std::vector<int> join_tree(const JoinRequest& request);

/// Is the joined value computed from the parts, or do their bytes lie in it?
bool computes(const JoinRequest& request);

/// Rows of bytes that go somewhere as they are: of a part, from an offset to an offset, each so many bytes behind the one before.
struct CarriedRows {
  std::size_t part = 0;
  std::int64_t from = 0, to = 0, bytes = 0, rows = 1, from_step = 0, to_step = 0;
};
using CarryRows = std::function<void(const CarriedRows& rows)>;
/// What a join that computes nothing carries, in order.
void carry_join(const JoinRequest& request, const LocalType& type, const CarryRows& carry);
/// Rows [first, first + count) along an axis, from part 0.
void carry_rows(const LocalType& from, int axis, std::int64_t first, std::int64_t count, const CarryRows& carry);

}  // namespace belfry
