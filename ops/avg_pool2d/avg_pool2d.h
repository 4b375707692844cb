// The mean of each window over height and width, and of the whole picture.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// avg_pool2d: y (n, h', w', c) of x (n, h, w, c): the mean of the elements of x under the window; padding is not counted, as in
/// TensorFlow. `strides` empty: those of the window; `padding` and `pads` as in conv2d; elements of a window lie `dilations` apart. avg_pool2d_gradient gives each of them its share of
/// dy. f32 or f64; sums in f64 by the references.
std::vector<OpDef> avg_pool2d_defs();

struct AvgPool2dOptions {
  Integers window = {2, 2};
  Integers strides = {};
  std::string padding = "valid";
  Integers dilations = {1, 1};
  Integers pads = {};
};
Value avg_pool2d(Value x, const AvgPool2dOptions& options = {}, SourceLine at = SourceLine::here());

/// The mean or the largest value of each channel of x (n, h, w, c): (n, c), or (n, 1, 1, c) with `keep`. These are reductions.
Value global_avg_pool2d(Value x, bool keep = false, SourceLine at = SourceLine::here());
Value global_max_pool2d(Value x, bool keep = false, SourceLine at = SourceLine::here());

}  // namespace belfry
