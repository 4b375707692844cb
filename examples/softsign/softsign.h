// An op outside the library: softsign.
#pragma once

#include <belfry/ops/emit.h>

namespace my {

/// y = x / (1 + |x|). x: f32 or f64, any shape.
belfry::OpDef softsign_def();

belfry::Value softsign(belfry::Value x, belfry::SourceLine at = belfry::SourceLine::here());

}  // namespace my
