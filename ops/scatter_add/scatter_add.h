// Rows added to a table by index.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = x with updates[i…] added to its row indices[i…], in the order of the indices; x (rows, row…), updates (indices…, row…) of one
/// dtype, f32, f64, i32 or i64; indices: u8, i32 or i64; one outside the table is an error. Rows of indices and updates are gathered.
OpDef scatter_add_def();
Value scatter_add(Value x, Value indices, Value updates, SourceLine at = SourceLine::here());

}  // namespace belfry
