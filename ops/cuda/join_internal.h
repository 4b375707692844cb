// Joining what towers hold, in one pass: the fixed binary tree walked in registers.
#pragma once

#include <string>
#include <vector>

#include <belfry/ops/cuda/generated_internal.h>

namespace belfry {

/// What the arguments of a launch have room for.
inline constexpr std::size_t kMostJoinedByGpu = 3072;

/// `tree`: n ≥ 0 pushes part n, -1 joins the top two, as executor/joins walks it. `how`: "sum", "max", or "mean" (the sum over `present`).
/// Parts are the inputs, of `type`, all of the output's shape; bools are joined by max alone. A part alone is copied.
Generated join_source(const std::vector<int>& tree, const std::string& how, std::int64_t present, const LocalType& type);

}  // namespace belfry
