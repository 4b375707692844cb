// Holding values, or their norms, below a bound.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// clip() under TensorFlow's name: x held between min and max; at both edges the gradient passes.
Value clip_by_value(Value x, double min, double max, SourceLine at = SourceLine::here());
/// x·limit/max(‖x‖, limit), the norm over `axes` (empty: all); limit > 0. f32 or f64. A value within the limit keeps its bits.
Value clip_by_norm(Value x, double limit, Integers axes = {}, SourceLine at = SourceLine::here());
/// x·limit/max(‖x‖ / n, limit), n its elements, as tf.clip_by_average_norm.
Value clip_by_average_norm(Value x, double limit, SourceLine at = SourceLine::here());
/// √(Σ of the squares of all values). UserError for an empty list or several dtypes.
Value global_norm(const std::vector<Value>& values, SourceLine at = SourceLine::here());

struct ClippedByNorm {
  std::vector<Value> values;
  Value norm;  ///< as it was
};
/// Every value times limit/max(norm, limit), with the norm of them all; a norm that is no finite number makes them NaN.
ClippedByNorm clip_by_global_norm(const std::vector<Value>& values, double limit, SourceLine at = SourceLine::here());

}  // namespace belfry
