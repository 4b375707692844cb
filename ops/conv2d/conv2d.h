// Two-dimensional convolution and its two gradients.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// conv2d: y (n, h', w', o) of x (n, h, w, i) and a filter (kh, kw, i, o), which is not flipped. `strides` over height and
/// width; `padding` "valid" or "same" (TensorFlow's: ⌈size/stride⌉ windows, the odd element of padding behind).
/// conv2d_input_gradient: dx of dy and the filter; conv2d_filter_gradient: dfilter of x and dy. f32 or f64; sums in f64 by
/// the references.
std::vector<OpDef> conv2d_defs();

struct Conv2dOptions {
  Integers strides = {1, 1};
  std::string padding = "valid";
};
Value conv2d(Value x, Value filter, const Conv2dOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace belfry
