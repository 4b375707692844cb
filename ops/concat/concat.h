// Values side by side along an axis, an old one or a new one.
#pragma once

#include <vector>

#include <belfry/ops/emit.h>

namespace belfry {

/// y = the inputs one behind the other along `axis`; they agree in dtype (any) and in all other axes. Axes of rows add up to
/// a multiple of the batch: (batch) beside (2*batch) is (3*batch). Along another axis rows stay rows; along the rows
/// the inputs are read whole.
OpDef concat_def();
Value concat(const std::vector<Value>& xs, int axis, SourceLine at = SourceLine::here());
/// y = the inputs, all of one type, along a new axis.
Value stack(const std::vector<Value>& xs, int axis = 0, SourceLine at = SourceLine::here());

}  // namespace belfry
