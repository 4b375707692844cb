// Stretching a value to the shape of another.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = x stretched to the shape of `like`, whose elements are not read. Any dtype.
OpDef broadcast_like_def();
Value broadcast_like(Value x, Value like, SourceLine at = SourceLine::here());

}  // namespace belfry
