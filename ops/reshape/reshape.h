// Another shape for the same elements in the same order.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = x in `shape`, whose dims may hold factors of the batch; as many elements. Rows stay rows where the row dimension
/// leads its merged group before and after; else x is read whole.
OpDef reshape_def();
Value reshape(Value x, Shape shape, SourceLine at = SourceLine::here());
/// All axes but the first made one.
Value flatten(Value x, SourceLine at = SourceLine::here());
/// Without the given axes, which have size 1; without any that has it, if none are given.
Value squeeze(Value x, const Integers& axes = {}, SourceLine at = SourceLine::here());
/// With new axes of size 1, which are those `axes` of the result.
Value expand_dims(Value x, const Integers& axes, SourceLine at = SourceLine::here());

}  // namespace belfry
