// Parts of a value: boxes with strides, reversed axes, splits; and the gradient that puts them back among zeros.
#pragma once

#include <limits>
#include <vector>

#include <belfry/ops/emit.h>

namespace belfry {

/// slice: along each axis y is `size` elements of x, from `begin` on, |stride| apart; with a negative stride the same elements
/// from the last to the first. Any dtype. Begins and sizes may be multiples of the batch, which must lie inside x for every
/// batch; a fixed part of the rows is an error of the run where the batch is too short.
/// An axis of rows that is taken whole, or every n-th of n per row, stays rows; of other parts of the rows x is read whole.
/// slice_gradient: dy at its place in zeros of the shape of `like`, whose elements are not read.
std::vector<OpDef> slice_defs();

/// Empty strides are ones.
Value slice(Value x, Shape begin, Shape size, Integers strides = {}, SourceLine at = SourceLine::here());

inline constexpr std::int64_t kToEnd = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kFromStart = std::numeric_limits<std::int64_t>::min();
/// x[begin : end : stride] for each axis, as NumPy has it: negative positions count from the end, those outside are cut to
/// the ends (kToEnd, kFromStart), a negative stride goes backwards. On an axis of rows: all of them, or fixed positions from the front.
Value strided_slice(Value x, Integers begin, Integers end, Integers strides = {}, SourceLine at = SourceLine::here());
/// The axes from back to front.
Value reverse(Value x, const Integers& axes, SourceLine at = SourceLine::here());
/// `count` equal parts along an axis, one behind the other.
std::vector<Value> split_even(Value x, int count, int axis = 0, SourceLine at = SourceLine::here());
/// Parts of the given sizes, which add up to the axis.
std::vector<Value> split_sizes(Value x, const Shape& sizes, int axis = 0, SourceLine at = SourceLine::here());
/// The parts of size 1 along an axis, without it: the inverse of stack.
std::vector<Value> unstack(Value x, int axis = 0, SourceLine at = SourceLine::here());

}  // namespace belfry
