// The largest or smallest elements along an axis, and whether a class is among them.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// top_k: the k largest of x (with `largest` false: the smallest) along `axis` in order, and where they stand (i32); among equal values
/// the lower index is first. x: any dtype but bool; NaN is above all numbers. Outputs have size k along the axis.
/// in_top_k: y = whether fewer than k predictions of a row are above that of its target: ties are in. predictions (…, classes): f32 or f64,
/// targets (…): u8, i32 or i64. False where the target is no class, or a prediction that was looked at is not finite.
std::vector<OpDef> top_k_defs();

struct TopK {
  Value values, indices;
};
struct TopKOptions {
  int axis = -1;
  bool largest = true;
};
TopK top_k(Value x, std::int64_t k, const TopKOptions& options = {}, SourceLine at = SourceLine::here());
Value in_top_k(Value targets, Value predictions, std::int64_t k, SourceLine at = SourceLine::here());

}  // namespace belfry
