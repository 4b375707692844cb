// Running sums along an axis.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y[k] = Σ x[j] over j ≤ k along `axis`; `exclusive`: over j < k; `reverse`: over j ≥ k, or j > k. f32, f64, i32, i64;
/// sums are taken in f64.
OpDef cumsum_def();

struct CumsumOptions {
  int axis = 0;
  bool exclusive = false;
  bool reverse = false;
};
Value cumsum(Value x, const CumsumOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace belfry
