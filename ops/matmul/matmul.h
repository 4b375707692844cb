// Products of two tensors summed over shared axes.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// y = a·b. Without an `equation`: a (…, m, k) · b (k, n), or b (…, k, n) with the same leading axes. An equation names the
/// axes of a, b and y by letters as einsum does ("bsk,bsn->kn"); letters that y lacks are summed. f32 or f64.
OpDef matmul_def();
/// The letters of a, b and y.
struct Letters {
  std::string a, b, y;
};
Letters letters_of(const std::string& equation, int rank_a, int rank_b);

/// Leading axes are broadcast as in elementwise ops; a vector is a row on the left and a column on the right.
Value matmul(Value a, Value b, SourceLine at = SourceLine::here());
Value contract(const std::string& equation, Value a, Value b, SourceLine at = SourceLine::here());

}  // namespace belfry
