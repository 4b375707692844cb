// Softmax and its logarithm along one axis.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// softmax: y = exp(x) / Σ exp(x) along `axis`. log_softmax: y = x − log Σ exp(x). f32 or f64, any shape of rank ≥ 1;
/// the largest element is subtracted first.
std::vector<OpDef> softmax_defs();
Value softmax(Value x, int axis = -1, SourceLine at = SourceLine::here());
Value log_softmax(Value x, int axis = -1, SourceLine at = SourceLine::here());

}  // namespace belfry
