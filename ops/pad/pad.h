// Elements before and after the data along any axes.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// pad: y has before[a] elements in front of axis a of x and after[a] behind it. `mode` "constant": they are `value`; "reflect": the
/// data mirrored at its first and last element, which are not repeated; "symmetric": mirrored with these repeated. Any dtype but
/// f16 and bf16 that holds the value, any rank; axes with rows take no padding. A mirror reaches once: reflect needs padding below the axis's size,
/// symmetric at most the size.
/// pad_gradient: dx of dy, each element of x taking what its copies get. f32 or f64.
std::vector<OpDef> pad_defs();

struct PadOptions {
  Integers before, after;  ///< one of each per axis
  std::string mode = "constant";
  double value = 0;
};
Value pad(Value x, const PadOptions& options, SourceLine at = SourceLine::here());

}  // namespace belfry
