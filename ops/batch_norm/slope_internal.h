// What the gradient of a batch norm makes of the dy behind its activation.
#pragma once

#include <belfry/graph/attributes.h>
#include <belfry/ops/batch_norm/batch_norm.h>

namespace belfry {

enum class Slope { one, relu, relu6 };

inline Slope slope_of(const Attributes& attributes) {
  const std::string& behind = attributes.text(kActivation);
  return behind == "relu" ? Slope::relu : behind == "relu6" ? Slope::relu6 : Slope::one;
}

/// Whether dy goes through at that y: as in the gradients of relu and relu6, at no NaN.
inline bool passes(Slope slope, double y) { return slope == Slope::one || (y > 0 && (slope == Slope::relu || y < 6)); }

}  // namespace belfry
