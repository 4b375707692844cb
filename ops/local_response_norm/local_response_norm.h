// Each channel divided by a power of the squares of its neighbours.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// local_response_norm: y_c = x_c / (bias + alpha · Σ x_k²)^beta over the channels k in [c − depth_radius, c + depth_radius], the
/// last axis. TensorFlow's formula and defaults: alpha is not divided by the number of channels, as in Krizhevsky et al. 2012 (ONNX
/// and Caffe divide it).
/// bias > 0, alpha ≥ 0, so that the power is of something positive. f32 or f64, rank ≥ 2; sums in f64 by the references.
/// local_response_norm_gradient: dx of x and dy.
std::vector<OpDef> local_response_norm_defs();

struct LocalResponseNormOptions {
  std::int64_t depth_radius = 5;
  double bias = 1;
  double alpha = 1;
  double beta = 0.5;
};
Value local_response_norm(Value x, const LocalResponseNormOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace belfry
