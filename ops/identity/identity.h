// The value itself, under a name of its own.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = x: gives a value a name, or a place to put a device on. Any dtype.
OpDef identity_def();
Value identity(Value x, const std::string& name = {}, SourceLine at = SourceLine::here());

}  // namespace belfry
