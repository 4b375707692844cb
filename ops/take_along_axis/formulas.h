// What the references and the kernels of take_along_axis share: the check of an index.
#pragma once

#include <cstdint>
#include <string>

#include <belfry/graph/error.h>

namespace belfry {

/// UserError unless index k, at a position of the indices, lies on an axis of n.
inline void check_index(std::int64_t k, std::int64_t position, std::int64_t n) {
  if (k < 0 || k >= n) throw UserError("[take_along_axis] index " + std::to_string(k) + " at position " + std::to_string(position) + " is outside an axis of " + std::to_string(n));
}

}  // namespace belfry
