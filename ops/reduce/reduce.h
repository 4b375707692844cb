// Reductions over axes: sum, mean, max.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// reduce_sum, reduce_max: over `axes` (empty: all), kept as 1 with `keep`. f32, f64, i32, i64; f32 sums are taken in f64
/// by the reference. Equal maxima share the gradient evenly.
std::vector<OpDef> reduce_defs();
/// reduce_mean: f32 or f64. Before gradients the pass lower_means writes it as a sum and a count.
OpDef reduce_mean_def();

struct ReduceOptions {
  Integers axes = {};
  bool keep = false;
};
Value reduce_sum(Value x, const ReduceOptions& options = {}, SourceLine at = SourceLine::here());
Value reduce_max(Value x, const ReduceOptions& options = {}, SourceLine at = SourceLine::here());
Value reduce_mean(Value x, const ReduceOptions& options = {}, SourceLine at = SourceLine::here());
/// The mean of all elements; bool and integers count as f32.
Value mean(Value x, SourceLine at = SourceLine::here());

}  // namespace belfry
