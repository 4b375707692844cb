// Holding values, gradients above all, or their norms below a bound: compositions, no ops of their own.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// clip() under TensorFlow's name: x held between min and max; at both edges the gradient passes.
Value clip_by_value(Value x, double min, double max, SourceLine at = SourceLine::here());
/// √Σ x² over all elements of all values: a scalar. UserError for an empty list or several dtypes.
Value global_norm(const std::vector<Value>& values, SourceLine at = SourceLine::here());
/// x·limit/max(‖x‖, limit), as tf.clip_by_norm; x: f32 or f64. A value within the limit keeps its bits, and zeros have a gradient.
/// UserError where limit is not positive, here and below.
Value clip_by_norm(Value x, double limit, SourceLine at = SourceLine::here());
/// The same with a norm over `axes` for each place along the others.
Value clip_by_norm_along(Value x, double limit, Integers axes, SourceLine at = SourceLine::here());
/// The same with ‖x‖ divided by the number of elements, as tf.clip_by_average_norm.
Value clip_by_average_norm(Value x, double limit, SourceLine at = SourceLine::here());
/// Every value times limit/max(global norm, limit), as tf.clip_by_global_norm (Pascanu et al. 2012); a norm that is no finite
/// number makes them all NaN.
std::vector<Value> clip_by_global_norm(const std::vector<Value>& values, double limit, SourceLine at = SourceLine::here());

}  // namespace belfry
