// Joining what each tower has of its own.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = the mean over the towers that have rows of a per-tower value (batch statistics, a tower's own loss); of any other
/// value y = x. f32 or f64.
OpDef tower_mean_def();
Value tower_mean(Value x, SourceLine at = SourceLine::here());

}  // namespace belfry
