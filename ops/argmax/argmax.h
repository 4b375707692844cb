// The index of the largest or the smallest element along an axis.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// argmax, argmin: y = the index of the largest (smallest) of x along `axis`, which is removed: the first of equal ones, or with `last` the
/// last. x: any dtype but bool; y: i32.
std::vector<OpDef> argmax_defs();
Value argmax(Value x, int axis = -1, SourceLine at = SourceLine::here());
Value argmin(Value x, int axis = -1, SourceLine at = SourceLine::here());

}  // namespace belfry
