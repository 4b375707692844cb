// The value itself: under a name of its own, or out of reach of gradients.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = x: gives a value a name, or a place to put a device on. Any dtype.
OpDef identity_def();
Value identity(Value x, const std::string& name = {}, SourceLine at = SourceLine::here());

/// y = x, of which no gradient reaches x. Any dtype. Nothing is left of it once gradients were taken.
OpDef stop_gradient_def();
Value stop_gradient(Value x, SourceLine at = SourceLine::here());

}  // namespace belfry
