// Holding values, gradients above all, below a norm: compositions, no ops of their own. `clip` (of unary.h) holds each element.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// √Σ x² over all elements of all values: a scalar. UserError for an empty list or several dtypes.
Value global_norm(const std::vector<Value>& values, SourceLine at = SourceLine::here());
/// x·limit/max(‖x‖, limit), as tf.clip_by_norm; x: f32 or f64. UserError where limit is not positive, here and below.
Value clip_by_norm(Value x, double limit, SourceLine at = SourceLine::here());
/// The same with ‖x‖ divided by the number of elements, as tf.clip_by_average_norm.
Value clip_by_average_norm(Value x, double limit, SourceLine at = SourceLine::here());
/// Every value times limit/max(global norm, limit), as tf.clip_by_global_norm (Pascanu et al. 2012).
std::vector<Value> clip_by_global_norm(const std::vector<Value>& values, double limit, SourceLine at = SourceLine::here());

}  // namespace belfry
