// Sums of columns in blocks of rows: what reductions and norms on the CPU share.
#pragma once

#include <belfry/ops/cpu/parallel_internal.h>

namespace belfry {

/// x (rows, columns). Rows are cut into blocks of about 16 Ki elements and 256 rows at most, and of a 32nd of the rows, but 32 at most, at least, so that what blocks add up to is small beside
/// them; inside a block a column is summed in f64 in row order. A single column: blocks of 4 Ki rows in eight interleaved lanes, joined as a tree. The blocks' sums are added in f64 in at most
/// 64 groups of neighbours, in order, then the groups' in order. So the bits depend on the shape alone, never on the number of threads.
struct ColumnSums {
  ColumnSums(std::int64_t m, std::int64_t n)
      : rows(m), columns(n), block(n == 1 ? 4096 : std::max({std::int64_t{1}, std::min<std::int64_t>(256, 16 * 1024 / std::max<std::int64_t>(n, 1)), std::min<std::int64_t>(32, m / 32)})),
        blocks(std::max<std::int64_t>(1, (m + block - 1) / block)), group((blocks + 63) / 64) {}
  std::int64_t rows, columns, block, blocks;
  std::int64_t group;  ///< blocks whose sums are added before those of others
  /// For `terms` sums at once, in f64.
  std::int64_t scratch_bytes(int terms = 1) const { return blocks * columns * terms * static_cast<std::int64_t>(sizeof(double)); }

  /// `add(first_row, past_row, sums)` adds the terms of a block of rows to sums[term * columns + column],
  /// which are zero. Block 0 of the partials holds the result.
  template <class Add>
  void run(double* partials, int terms, int threads, const Add& add) const {
    std::int64_t width = columns * terms;
    for_ranges(blocks, rows * columns, threads, [&](std::int64_t first, std::int64_t past) {
      for (std::int64_t b = first; b < past; ++b) {
        double* mine = partials + b * width;
        std::fill_n(mine, width, 0.0);
        add(b * block, std::min(rows, (b + 1) * block), mine);
      }
    });
    auto join = [&](std::int64_t to, std::int64_t past, std::int64_t step) {
      for (std::int64_t b = to + step; b < past; b += step)
        for (std::int64_t i = 0; i < width; ++i) partials[to * width + i] += partials[b * width + i];
    };
    for (std::int64_t b = 0; b < blocks; b += group) join(b, std::min(blocks, b + group), 1);
    join(0, blocks, group);
  }
};

}  // namespace belfry
