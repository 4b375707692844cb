// Comparison, logic and choice, elementwise with broadcasting.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// equal, not_equal, less, less_equal, greater, greater_equal: y as bool; a, b of one dtype. logical_and, logical_or, logical_not: bools alone.
std::vector<OpDef> compare_defs();
/// y = condition ? a : b; condition: bool; a, b of one dtype.
OpDef where_def();

Value equal(Value a, Value b, SourceLine at = SourceLine::here());
Value not_equal(Value a, Value b, SourceLine at = SourceLine::here());
Value less(Value a, Value b, SourceLine at = SourceLine::here());
Value less_equal(Value a, Value b, SourceLine at = SourceLine::here());
Value greater(Value a, Value b, SourceLine at = SourceLine::here());
Value greater_equal(Value a, Value b, SourceLine at = SourceLine::here());
Value logical_and(Value a, Value b, SourceLine at = SourceLine::here());
Value logical_or(Value a, Value b, SourceLine at = SourceLine::here());
Value logical_not(Value x, SourceLine at = SourceLine::here());
Value where(Value condition, Value a, Value b, SourceLine at = SourceLine::here());

}  // namespace belfry
