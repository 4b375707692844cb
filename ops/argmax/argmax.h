// The index of the largest element along an axis.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = the first index of the largest of x along `axis`, which is removed; x: any dtype but bool; y: i32.
OpDef argmax_def();
Value argmax(Value x, int axis = -1, SourceLine at = SourceLine::here());

}  // namespace belfry
