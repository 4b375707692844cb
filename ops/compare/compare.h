// Comparison and choice, elementwise with broadcasting: equal, greater_equal, where.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = (a = b), y = (a ≥ b) as bool; a, b of one dtype.
std::vector<OpDef> compare_defs();
/// y = condition ? a : b; condition: bool; a, b of one dtype.
OpDef where_def();

Value equal(Value a, Value b, SourceLine at = SourceLine::here());
Value greater_equal(Value a, Value b, SourceLine at = SourceLine::here());
Value where(Value condition, Value a, Value b, SourceLine at = SourceLine::here());

}  // namespace belfry
