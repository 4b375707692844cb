// Attention with several heads as a layer.
#pragma once

#include <belfry/frontends/nn/layers.h>

namespace belfry::nn {

struct MultiHeadAttentionOptions {
  std::int64_t heads = 0;
  std::int64_t key_size = 0;          ///< per head
  std::int64_t value_size = 0;        ///< per head; 0: that of keys
  std::int64_t output_size = 0;       ///< 0: that of the queries
  bool causal = false;
  bool bias = true;
  bool packed = false;                ///< one product makes queries, keys and values of the same value
  Init kernel_init = "glorot_uniform", bias_init = "zeros";
  bool trainable = true;
  std::string name = "multi_head_attention";
};

/// query (batch, queries, in) attends to value (batch, keys, in'), whose keys are made from `value` too. Variables are those of
/// Keras's MultiHeadAttention: query/kernel (in, heads, key_size) and query/bias, key/…, value/…, attention_output/kernel
/// (heads, value_size, out) and attention_output/bias. `packed`, where query and value are one and values as long as keys: qkv/kernel (in, 3, heads, key_size) and qkv/bias, of
/// queries, keys and values in this order, which begin as they would apart; a larger product, and the same numbers. The mask broadcasts to (batch, heads, queries, keys); empty: none.
Value multi_head_attention(Value query, Value value, Value mask, const MultiHeadAttentionOptions& options, SourceLine at = SourceLine::here());

}  // namespace belfry::nn
