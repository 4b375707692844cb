// Pictures in another height and width.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// resize: y (n, h', w', c) of x (n, h, w, c), `size` being h' and w'. Pixels have their centres at halves, as in tf.image.resize:
/// pixel i of y looks at p = (i + ½)·h/h' − ½ of x. "bilinear" weighs the two pixels around p, at the edges the outer one alone;
/// "nearest" takes pixel ⌊p + ½⌋. A pixel of weight 0 is not looked at, whatever it holds; a mean of ∞ is NaN where TensorFlow's a + (b − a)·w is.
/// No antialiasing: a much smaller picture leaves pixels out. resize_gradient: dx of dy. f32 or f64.
std::vector<OpDef> resize_defs();

struct ResizeOptions {
  std::string method = "bilinear";
};
Value resize(Value x, Integers size, const ResizeOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace belfry
