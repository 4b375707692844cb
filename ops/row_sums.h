// Which sums of rows, as gradients of biases are, a kernel takes on the way that makes the rows.
#pragma once

#include <algorithm>
#include <vector>

#include <belfry/graph/contexts.h>
#include <belfry/graph/graph.h>

namespace belfry {

/// Whether a reduce_sum of what has this type is over all axes but the last.
inline bool is_sum_of_rows(const Node& sum, const TensorType& of) {
  const auto rank = static_cast<int>(of.shape.size());
  const std::vector<int> axes = axes_from_front(sum.attributes.integers("axes"), rank);
  return rank > 1 && static_cast<int>(axes.size()) == rank - 1 && std::find(axes.begin(), axes.end(), rank - 1) == axes.end();
}

/// Elements of a row of floats; 0: of others, or of a symbol.
inline std::int64_t row_width(const TensorType& t) { return t.shape.empty() || t.shape.back().symbolic() || !(is_float(t.dtype) || is_half(t.dtype)) ? 0 : t.shape.back().factor; }

/// Of rows so wide that there are threads for blocks of them, whose sums are small beside them.
inline bool adds_beside_trees(const TensorType& t) { return row_width(t) >= 256; }

/// And no wider than threads have room for that hold a row for its norm; of f64 they have none.
inline bool adds_beside_norms(const TensorType& t) { return adds_beside_trees(t) && row_width(t) <= 2048 && t.dtype != f64; }

/// Of any width but one: a single column is added in lanes.
inline bool adds_beside_batch_norms(const TensorType& t) { return row_width(t) > 1; }

}  // namespace belfry
