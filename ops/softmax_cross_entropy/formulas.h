// What the reference and the kernels of softmax cross entropy share.
#pragma once

#include <belfry/graph/contexts.h>

namespace belfry {

/// The number of an example in the whole batch, for messages: a tower's examples follow those of the towers before it.
inline std::int64_t global_example(std::int64_t example, std::int64_t examples, const TensorType& losses, const Share& share) {
  bool leading = !losses.shape.empty() && losses.shape[0].symbolic() && share.rows > 0;
  return leading ? example + share.first_row * (examples / share.rows) : example;
}

}  // namespace belfry
