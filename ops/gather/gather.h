// Rows of a table by index: the lookup of an embedding, and its gradient.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// gather: y = the rows of the table at `indices` along `axis`, whose place the axes of the indices take: (indices…, row…) of
/// (rows, row…) where it is the first. Table: any dtype, indices: u8, i32 or i64; one outside the table is an error.
/// gather_gradient: the dense gradient of the table: rows of dy added by index, in their order.
std::vector<OpDef> gather_defs();
Value gather(Value table, Value indices, int axis = 0, SourceLine at = SourceLine::here());
/// y[s] = Σ x[i] over the i with ids[i] = s, 0 where there is none; y: (segments, row…) of x (ids…, row…), f32 or f64. An id outside is an error.
Value unsorted_segment_sum(Value x, Value ids, Dim segments, SourceLine at = SourceLine::here());

}  // namespace belfry
