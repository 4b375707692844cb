// Reductions over axes: sum, mean, max, min, prod, any, all, log of the sum of exponentials, and what is made of them.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// reduce_sum, reduce_max: over `axes` (empty: all), kept as 1 with `keep`. f32, f64, i32, i64; f32 sums are taken in f64
/// by the reference. Equal maxima share the gradient evenly.
/// reduce_min, reduce_prod: the same dtypes; equal minima share evenly too. reduce_any, reduce_all: bool. reduce_logsumexp: f32, f64.
/// No partial value stands for these over rows: where rows are reduced the pass write_out_ops writes reduce_min, reduce_any,
/// reduce_all and reduce_logsumexp as sums and maxima, which towers join; reduce_prod reads its rows whole.
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
Value reduce_min(Value x, const ReduceOptions& options = {}, SourceLine at = SourceLine::here());
Value reduce_prod(Value x, const ReduceOptions& options = {}, SourceLine at = SourceLine::here());
Value reduce_any(Value x, const ReduceOptions& options = {}, SourceLine at = SourceLine::here());
Value reduce_all(Value x, const ReduceOptions& options = {}, SourceLine at = SourceLine::here());
/// log Σ exp(x), without overflow.
Value reduce_logsumexp(Value x, const ReduceOptions& options = {}, SourceLine at = SourceLine::here());
struct Moments {
  Value mean, variance;
};
/// Mean and variance over axes; the variance is the mean of the squared distances, divided by n.
Moments moments(Value x, const ReduceOptions& options = {}, SourceLine at = SourceLine::here());
Value reduce_variance(Value x, const ReduceOptions& options = {}, SourceLine at = SourceLine::here());
/// x / √max(Σ x², epsilon), the sum over `axes`.
Value l2_normalize(Value x, Integers axes = {-1}, double epsilon = 1e-12, SourceLine at = SourceLine::here());
/// Σ x² / 2.
Value l2_loss(Value x, SourceLine at = SourceLine::here());
/// The mean of all elements; bool and integers count as f32.
Value mean(Value x, SourceLine at = SourceLine::here());

}  // namespace belfry
