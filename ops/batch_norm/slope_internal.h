// What the gradient of a batch norm makes of the dy behind its activation.
#pragma once

#include <belfry/graph/attributes.h>
#include <belfry/ops/batch_norm/batch_norm.h>
#include <belfry/ops/unary/formulas.h>

namespace belfry {

enum class Slope { one, relu, relu6 };

inline Slope slope_of(const Attributes& attributes) {
  const std::string& behind = attributes.text(kActivation);
  return behind == "relu" ? Slope::relu : behind == "relu6" ? Slope::relu6 : Slope::one;
}

/// What y lets through of dy.
inline double through(Slope slope, double dy, double y) {
  return slope == Slope::relu ? unary_formulas::ReluGradient{}(dy, y) : slope == Slope::relu6 ? unary_formulas::Relu6Gradient{}(dy, y) : dy;
}

}  // namespace belfry
