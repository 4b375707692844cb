// Rows of a table by index: the lookup of an embedding, and its gradient.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// gather: y (indices…, row…) = table[indices]; table: (rows, row…) of any dtype, indices: i32 or i64; one outside the
/// table is an error. gather_gradient: the dense gradient of the table: rows of dy added by index, in row order.
std::vector<OpDef> gather_defs();
Value gather(Value table, Value indices, SourceLine at = SourceLine::here());

}  // namespace belfry
