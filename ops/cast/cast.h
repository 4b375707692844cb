// Another element type.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = x as `dtype`; floats to integers are cut towards zero, beyond what the type holds they are its nearest, a NaN is 0; to bool x ≠ 0. A widening cast of a partial stays partial.
OpDef cast_def();
Value cast(Value x, DType dtype, SourceLine at = SourceLine::here());

}  // namespace belfry
