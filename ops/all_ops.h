// The ops that come with Belfry.
#pragma once

#include <belfry/graph/op_def.h>

namespace belfry {

/// A set that a user's own ops can be added to.
OpSet standard_ops();

}  // namespace belfry
