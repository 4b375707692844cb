// Whether values are finite: what a gate of all updates is made of.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// A bool scalar: true if no element of x is infinite or NaN. x: f32 or f64, any shape. Of a value that is summed over the
/// towers it is the sum that counts.
Value all_finite(Value x, SourceLine at = SourceLine::here());
/// True if all of the bool scalars are. UserError for an empty list.
Value all_of(const std::vector<Value>& conditions, SourceLine at = SourceLine::here());

}  // namespace belfry
