// Normalisation inside each example: over its last axes, or over groups of its channels.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// layer_norm: y = (x − mean)·r·gamma + beta with r = 1/√(variance + epsilon), the biased moments taken over all axes from
/// `axis` on; gamma and beta have the shape of these axes, and either may be left out. With `rms` nothing is subtracted:
/// r = 1/√(mean(x²) + epsilon) (Zhang and Sennrich 2019). group_norm: the same over all but the first axis and `groups` equal
/// runs of the last (Wu and He 2018); x: (batch, …, channels), gamma and beta: (channels). The second and third output, computed
/// where they are read, are mean (0 with `rms`) and r, per example (and group). f32 or f64.
/// With `rounded_to` y is a half although x is f32: each element is rounded once.
/// layer_norm_gradient, group_norm_gradient: dx, and dgamma and dbeta where they are read. With `wide` dx is f32, and x and dy may
/// each be f32 or a half.
std::vector<OpDef> layer_norm_defs();

struct LayerNormOptions {
  int axis = -1;
  double epsilon = 1e-3;
};
struct GroupNormOptions {
  std::int64_t groups = 32;
  double epsilon = 1e-3;
};
/// An empty gamma stands for ones, an empty beta for zeros.
Value layer_norm(Value x, Value gamma, Value beta, const LayerNormOptions& options = {}, SourceLine at = SourceLine::here());
Value rms_norm(Value x, Value gamma, const LayerNormOptions& options = {.epsilon = 1e-6}, SourceLine at = SourceLine::here());
Value group_norm(Value x, Value gamma, Value beta, const GroupNormOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace belfry
