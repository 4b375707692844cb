// Batch normalisation over all axes but the last.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// batch_norm: y = (x − mean)/√(variance + epsilon)·gamma + beta with the batch's biased mean and variance (channels),
/// which are the second and third output: per tower, or with `sync` of the whole batch. The fourth, computed where it is
/// read, is the variance of a sample, n/(n − 1) times the third (n = 1: the same). gamma and beta may be left out. The running
/// statistics are read outside training only. The node may have a sixth input, `bias` (channels): what x lacks and the running mean has, which is taken off that outside training; the pass
/// drop_shifts gives it. f32 or f64; x of rank ≥ 2.
/// batch_norm_gradient: dx, dgamma, dbeta, of x, gamma, beta, mean, variance and dy. With the attribute `activation` relu or relu6 dy is that of relu(y) or relu6(y): y is made from x once more, which the pass fold_slopes
/// asks for; only then beta is read.
/// batch_statistic: its first input in training, the second, of the same type, outside: what `sync` is written out with.
std::vector<OpDef> batch_norm_defs();
inline constexpr const char* kActivation = "activation";
/// The norm whose x and statistics a batch norm's gradient reads; -1: it is no such gradient, or reads others.
NodeId norm_of(const Graph& graph, NodeId gradient);

struct BatchNormOptions {
  double epsilon = 1e-3;
  bool sync = false;
};
/// Output 0 is y, 1 the mean, 2 the biased variance, 3 that of a sample. An empty gamma stands for ones, an empty beta for zeros.
Value batch_norm(Value x, Value gamma, Value beta, Value running_mean, Value running_variance, const BatchNormOptions& options = {}, SourceLine at = SourceLine::here());
/// What batch_norm is outside training, y = x·scale + shift: a scale and a shift per channel, from statistics that are given.
struct ChannelScale {
  Value scale, shift;
};
ChannelScale batch_norm_scale(Value gamma, Value beta, Value mean, Value variance, double epsilon = 1e-3);
Value batch_norm_inference(Value x, Value gamma, Value beta, Value mean, Value variance, double epsilon = 1e-3, SourceLine at = SourceLine::here());

}  // namespace belfry
