#include <belfry/frontends/nn/attention.h>

#include <belfry/frontends/nn/layer_support_internal.h>

namespace belfry::nn {

namespace {

/// What draws weights of the shape where others lie beside them, which their fans do not count.
Init beside_others(const Init& init, const Extents& shape) {
  const FanScales scales = fan_scales(shape);
  if (init.kind == "glorot_uniform") return {"uniform", scales.glorot_limit};
  return init.kind == "he_normal" ? Init{"normal", scales.he_deviation} : init;
}

/// x·kernel + bias under a name of its own below the layer's.
Value projected(Value x, const char* name, const char* equation, const Shape& kernel, const Shape& bias, const MultiHeadAttentionOptions& o) {
  Graph& g = *x.graph;
  CursorGuard guard = enter(g, g.cursor.scope + "/" + name);
  Value y = contract(equation, x, parameter(g, "kernel", kernel, x.dtype(), o.kernel_init, o.trainable));
  return o.bias ? y + parameter(g, "bias", bias, x.dtype(), o.bias_init, o.trainable) : y;
}

/// (batch, places, heads, size).
Value heads_of(Value x, const char* name, std::int64_t size, const MultiHeadAttentionOptions& o) {
  std::int64_t in = fixed_size("multi_head_attention", x, 2);
  return projected(x, name, "bti,ihk->bthk", {in, o.heads, size}, {o.heads, size}, o);
}

}  // namespace

Value multi_head_attention(Value query, Value value, Value mask, const MultiHeadAttentionOptions& o, SourceLine at) {
  need_size("multi_head_attention", "heads", o.heads);
  need_size("multi_head_attention", "key_size", o.key_size);
  for (Value x : {query, value})
    if (graph_of(x, "multi_head_attention", at); x.rank() != 3) throw UserError(fmt::format("[multi_head_attention] '{}' is {}; queries and values need the axes batch, place and feature", x.name(), to_string(x.type())));
  Graph& g = graph_of(query, "multi_head_attention", at);
  SourceGuard line(g, at);
  CursorGuard guard = enter(g, g.free_scope(o.name));
  std::int64_t value_size = o.value_size ? o.value_size : o.key_size, out = o.output_size ? o.output_size : fixed_size("multi_head_attention", query, 2);
  auto output = [&](Value y) { return projected(y, "attention_output", "bthk,hko->bto", {o.heads, value_size, out}, {out}, o); };
  if (o.packed) {
    if (query.graph != value.graph || query.id != value.id) throw UserError(fmt::format("[multi_head_attention] packed: '{}' and '{}' are two values; queries, keys and values are made of one", query.name(), value.name()));
    if (value_size != o.key_size) throw UserError(fmt::format("[multi_head_attention] packed: values of {} beside keys of {}; they have one size", value_size, o.key_size));
    const std::int64_t in = fixed_size("multi_head_attention", query, 2);
    MultiHeadAttentionOptions of_three = o;
    of_three.kernel_init = beside_others(o.kernel_init, {in, o.heads, o.key_size});
    Value qkv = projected(query, "qkv", "bti,ishk->btshk", {in, 3, o.heads, o.key_size}, {3, o.heads, o.key_size}, of_three);
    return output(packed_attention(qkv, mask, {.causal = o.causal}));
  }
  Value q = heads_of(query, "query", o.key_size, o), k = heads_of(value, "key", o.key_size, o), v = heads_of(value, "value", value_size, o);
  return output(scaled_dot_product_attention(q, k, v, mask, {.causal = o.causal, .layout = "bthk"}));
}

}  // namespace belfry::nn
