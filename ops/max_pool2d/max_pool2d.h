// The largest value of each window over height and width.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// max_pool2d: y (n, h', w', c) of x (n, h, w, c); the second output, computed where it is read, is the position (u8) in the
/// window, row-major, of the value taken: the first of equal ones. `strides` empty: those of the window; `padding` and `pads` as in
/// conv2d, never taken; elements of a window lie `dilations` apart. max_pool2d_gradient sends dy to the positions taken. f32 or f64; a window of at most 256.
std::vector<OpDef> max_pool2d_defs();

struct MaxPool2dOptions {
  Integers window = {2, 2};
  Integers strides = {};
  std::string padding = "valid";
  Integers dilations = {1, 1};
  Integers pads = {};
};
Value max_pool2d(Value x, const MaxPool2dOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace belfry
