// Attention of queries to keys, without the matrix of scores ever being held.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// scaled_dot_product_attention: y = softmax(scale·q·kᵀ + mask)·v. q (…, queries, d), k (…, keys, d), v (…, keys, dv), y (…, queries, dv),
/// with the same leading axes (batch, heads); f32 or f64. `layout` "bthk": the heads stand behind the places, q (…, queries, heads, d) and so on; log_sum and scores have them before as ever. `scale` 0: 1/√d. `causal`: query i sees the keys 0 to i. The mask broadcasts to
/// (…, queries, keys): a bool one says which keys are seen, one of q's dtype is added to the scores, −∞ for a key that is not
/// seen. A query that sees no key gives 0. A key that a query does not see adds nothing to it and gets nothing from it, whatever either holds: also ∞ and NaN in what is padding
/// stay there (0·∞ is no number, so such pairs are left out of the sums; only causal halves, and f32 that GPUs may round, without a mask may, on a GPU, spread a NaN over the places beside it). The second
/// output, computed where it is read, is the logarithm of Σ exp(score) (…, queries): what the gradient recomputes the weights from, block by block (Dao et al. 2022).
/// scaled_dot_product_attention_gradient: dq, dk, dv, and where they are read the gradients of the scores, which an added mask has.
std::vector<OpDef> scaled_dot_product_attention_defs();

struct AttentionOptions {
  bool causal = false;
  double scale = 0;  ///< 0: 1/√d
  std::string layout = "bhtk";  ///< or "bthk"
};
/// An empty mask stands for none.
Value scaled_dot_product_attention(Value q, Value k, Value v, Value mask = {}, const AttentionOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace belfry
