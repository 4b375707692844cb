// Two-dimensional convolution, its two gradients, and its transpose.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// conv2d: y (n, h', w', o) of x (n, h, w, i) and a filter (kh, kw, i / groups, o), which is not flipped. `strides` over height and
/// width; `padding` "valid" or "same" (TensorFlow's: ⌈size/stride⌉ windows, the odd element of padding behind), or "valid" with `pads`: so many zeros above, below, left and right, fewer than a window spans; the taps of a
/// window lie `dilations` apart. With `groups` the k-th of equal shares of o reads the k-th of equal shares of i alone.
/// conv2d_input_gradient: dx of dy and the filter; conv2d_filter_gradient: dfilter of x and dy. f32 or f64; sums in f64 by
/// the references.
/// conv2d_transpose: y (n, h', w', o) of x (n, h, w, i) and a filter (kh, kw, o / groups, i): what conv2d's gradient is to its input.
/// h' = h·stride with padding "same", else h·stride + max(extent of the window − stride, 0), as Keras has it.
std::vector<OpDef> conv2d_defs();

struct Conv2dOptions {
  Integers strides = {1, 1};
  std::string padding = "valid";
  Integers dilations = {1, 1};
  std::int64_t groups = 1;
  Integers pads = {};
};
Value conv2d(Value x, Value filter, const Conv2dOptions& options = {}, SourceLine at = SourceLine::here());

struct DepthwiseConv2dOptions {
  Integers strides = {1, 1};
  std::string padding = "valid";
  Integers dilations = {1, 1};
  Integers pads = {};
};
/// Each channel of x (n, h, w, c) by its own filters of (kh, kw, c, multiplier): channel k·multiplier + q of y is channel k by its
/// filter q. It is conv2d in c groups, whose filter holds the same bytes: so both gradients, kernels and fusion are those of conv2d.
Value depthwise_conv2d(Value x, Value filter, const DepthwiseConv2dOptions& options = {}, SourceLine at = SourceLine::here());

struct Conv2dTransposeOptions {
  Integers strides = {1, 1};
  std::string padding = "valid";
  Integers dilations = {1, 1};
  std::int64_t groups = 1;
};
Value conv2d_transpose(Value x, Value filter, const Conv2dTransposeOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace belfry
