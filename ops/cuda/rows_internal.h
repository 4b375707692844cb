// Adding to the rows of a table by indices, without atomics: what the gradient of gather and scatter_add share.
#pragma once

#include <belfry/ops/cuda/generated_internal.h>

namespace belfry {

/// Rows, and positions, are counted in 32 bits.
inline constexpr std::int64_t kMostListed = 0x7FFFFFFF;

struct TableRows {
  std::int64_t outer = 1, rows = 1, inner = 1;
};

/// What an index says that is no row, as the CPU's kernels do.
std::function<std::string(std::int64_t position, const std::string& index)> outside_table(std::string op, std::int64_t rows);

/// Scratch: the indices' positions sorted by row, twice where that takes several passes, where each row's begin and end, and what sorting counts.
std::int64_t listed_bytes(std::int64_t rows, std::int64_t indices);

/// Output 0 (outer, rows, inner) = input `start` (zeros: −1) + the updates (outer, indices, inner), those of a row in the order of the
/// indices. One that is no row is left out, and a fault of `op`.
Generated add_to_rows(const std::string& op, const KernelRequest& r, std::size_t indices, std::size_t updates, int start, TableRows t);

}  // namespace belfry
