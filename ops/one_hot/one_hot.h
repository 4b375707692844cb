// Class indices as rows of zeros with a one.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = `on` at the index along a new axis of size `depth`, else `off`; `axis` is that of y, -1 the last. indices: i32, i64 or u8. An index
/// outside [0, depth) gives a line of `off`.
OpDef one_hot_def();

struct OneHotOptions {
  double on = 1, off = 0;
  int axis = -1;
};
Value one_hot(Value indices, Dim depth, DType dtype = f32, SourceLine at = SourceLine::here());
Value one_hot(Value indices, Dim depth, const OneHotOptions& options, DType dtype = f32, SourceLine at = SourceLine::here());

}  // namespace belfry
