// The sum of any number of values of one type.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = x₀ + x₁ + …, added from the left; all of one type. Joins the gradient contributions of a value.
OpDef add_n_def();
Value add_n(const std::vector<Value>& xs, SourceLine at = SourceLine::here(), const std::string& name = {});

}  // namespace belfry
