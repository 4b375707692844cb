// Elements of each line along an axis by their index, and the gradient that adds them back.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// take_along_axis: y[…, i, …] = x[…, indices[…, i, …], …] along `axis`; y has the shape of the indices, which have the axes of x and
/// equal sizes but along `axis`. x: any dtype, indices: u8, i32 or i64; one outside is an error (ONNX's GatherElements).
/// take_along_axis_gradient: dy added by index, in order, into zeros of the shape of `like`, whose elements are not read.
std::vector<OpDef> take_along_axis_defs();
Value take_along_axis(Value x, Value indices, int axis = -1, SourceLine at = SourceLine::here());

}  // namespace belfry
