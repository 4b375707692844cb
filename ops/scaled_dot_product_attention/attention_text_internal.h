// What the generated kernels of attention share: where heads lie, and the sums that the gradient begins with.
#pragma once

#include <belfry/ops/cuda/generated_internal.h>
#include <belfry/ops/scaled_dot_product_attention/formulas.h>

namespace belfry {

inline const char* const kAttentionPlaces = R"(
/// From one place of a head to the next.
#define STEP(features) (BESIDE * (features))
#define ROW_OF(head, places) ((head) / BESIDE * (places) * BESIDE + (head) % BESIDE)
/// Rows of features at which the queries and keys of the block's head begin, and elements at which its mask does: no register keeps them.
__shared__ i64 begins[3];
#define QUERIES_AT begins[0]
#define KEYS_AT begins[1]
#define MASK_AT begins[2]
inline void begin_head(i64 head, const Args& a) {
  __syncthreads();
  if (threadIdx.x == 0) begins[0] = ROW_OF(head, a.queries), begins[1] = ROW_OF(head, a.keys), begins[2] = MASK_OF(head);
  __syncthreads();
}
)";

/// Σ dy·y of every query, which all its scores share, to scratch.
inline const char* const kAttentionOwn = R"(
KERNEL void own(const Args a) {
  EACH_LINE(line) {
    T sum = 0;
    const i64 at = (ROW_OF(line / a.queries, a.queries) + line % a.queries * BESIDE) * a.n;
    EACH_OF(k, a.n) sum += ((const T*)a.in[5])[at + k] * ((const T*)a.in[3])[at + k];
    sum = across(sum, Add());
    if (threadIdx.x % WIDTH == 0) ((T*)a.scratch)[line] = sum;
  }
}
)";

inline Generated attention_head(const KernelRequest& r, const AttentionLayout& p) {
  Generated g(r);
  g.type("T", r.inputs[0].dtype).head(p.causal ? "#define CAUSAL 1" : "#define CAUSAL 0");
  g.number("heads", p.heads).number("queries", p.queries).number("keys", p.keys).number("width", p.width).number("value_width", p.value_width).real("scale", p.scale);
  if (heads_behind(*r.attributes)) g.number("beside", p.beside).head("#define BESIDE a.beside");
  else g.head("#define BESIDE 1");
  return g;
}

}  // namespace belfry
