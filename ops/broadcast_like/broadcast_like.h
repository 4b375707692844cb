// Stretching a value to the shape of another or to a given one, and repeating it.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = x stretched to the shape of `like`, whose elements are not read. Any dtype but f16 and bf16.
OpDef broadcast_like_def();
Value broadcast_like(Value x, Value like, SourceLine at = SourceLine::here());
/// y = x stretched to `shape` as elementwise ops do it: aligned at the right, axes of size 1 repeated. Any dtype but f16 and
/// bf16; the shape may hold multiples of the batch.
OpDef broadcast_to_def();
Value broadcast_to(Value x, Shape shape, SourceLine at = SourceLine::here());
/// x repeated multiples[i] times along axis i.
Value tile(Value x, Integers multiples, SourceLine at = SourceLine::here());

}  // namespace belfry
