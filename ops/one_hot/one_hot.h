// Class indices as rows of zeros with a one.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y (…, depth) = 1 at the index, else 0; indices: i32, i64 or u8. An index outside [0, depth) gives a row of zeros.
OpDef one_hot_def();
Value one_hot(Value indices, Dim depth, DType dtype = f32, SourceLine at = SourceLine::here());

}  // namespace belfry
