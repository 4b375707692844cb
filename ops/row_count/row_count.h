// The size of the batch as values: a count for means, and the weight of a row in a mean loss.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// n = the product of `dims`, with the global batch for its symbols: what a mean over rows divides by. A scalar.
OpDef row_count_def();
/// w of shape `shape` (one row axis, ones elsewhere), all 1/(n·count) where n is what `combine` says: the global batch,
/// towers × rows of this tower, or rows of this tower. A loss is reduce_sum(x·w), so the user never divides by towers.
OpDef row_weight_def();

Value row_count(Graph& graph, Shape dims, DType dtype, SourceLine at = SourceLine::here());
Value row_weight(Graph& graph, Shape shape, Shape count, DType dtype, SourceLine at = SourceLine::here());

}  // namespace belfry
