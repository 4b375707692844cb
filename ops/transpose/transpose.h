// The same elements with their axes in another order.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// Axis i of y is axis order[i] of x. Any dtype.
OpDef transpose_def();
Value transpose(Value x, Integers order, SourceLine at = SourceLine::here());

}  // namespace belfry
