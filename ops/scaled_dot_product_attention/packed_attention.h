// Attention of a sequence to itself, whose queries, keys and values one product makes.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// packed_attention: scaled_dot_product_attention of what lies side by side in one value. qkv (…, places, 3, heads, d): of each place first the queries of all heads, then their keys, then
/// their values; y (…, places, heads, d), log_sum (…, heads, places). The mask broadcasts to (…, heads, places, places). Weights, masks, scale and NaNs are as there.
/// packed_attention_gradient: dqkv, and where they are read the gradients of the scores, which an added mask has.
std::vector<OpDef> packed_attention_defs();

struct PackedAttentionOptions {
  bool causal = false;
  double scale = 0;  ///< 0: 1/√d
};
/// An empty mask stands for none.
Value packed_attention(Value qkv, Value mask = {}, const PackedAttentionOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace belfry
