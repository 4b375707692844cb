#include <belfry/ops/cuda_kernels.h>

#include <algorithm>
#include <string>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/scaled_dot_product_attention/formulas.h>

namespace belfry {
namespace {

/// A block works on SIDE queries and SIDE keys at a time, a thread on R of each. Products of a key that a query does not see are left out,
/// not multiplied by 0: what padding holds stays there.
const char* const kTiles = R"(
// Two blocks a multiprocessor.
#ifdef __CUDACC_RTC__
#undef KERNEL
#define KERNEL extern "C" __global__ __launch_bounds__(256, 2)
#endif
#define R (16 / (int)sizeof(T))
#define SIDE (16 * R)
#define DEPTH 16
#define LANES 0xFFFFFFFFu
#define NOTHING ((T)__uint_as_float(0xFF800000u))
/// From one place of a head to the next: of q, k and v, and of y.
#define STEP(features) (APART * (features))
#define Y_STEP (BESIDE * a.value_width)
#define ROW_OF(head, places, apart) ((head) / BESIDE * (places) * (apart) + (head) % BESIDE)
/// Where the block's head begins, which no register keeps: rows of features of its queries, keys and y, the mask, and what there is one of per query.
__shared__ i64 begins[5];
#define QUERIES_AT begins[0]
#define KEYS_AT begins[1]
#define Y_AT begins[2]
#define MASK_AT begins[3]
#define LINES_AT begins[4]
inline void begin_head(i64 head, const Args& a) {
  __syncthreads();
  if (threadIdx.x == 0) begins[0] = ROW_OF(head, a.queries, APART), begins[1] = ROW_OF(head, a.keys, APART), begins[2] = ROW_OF(head, a.queries, BESIDE), begins[3] = MASK_OF(head), begins[4] = head * a.queries;
  __syncthreads();
}
#define EACH(i) _Pragma("unroll") for (int i = 0; i < R; ++i)
#define ROW (threadIdx.x / 16)
#define COLUMN (threadIdx.x % 16)
typedef Pack<T, R> Few;
typedef Pack<bool, R> Bits;
__shared__ Few left[DEPTH][17], right[DEPTH][17], weights[SIDE][17];
__shared__ Bits open[SIDE][17];

/// Of SIDE rows the elements from k0 on: element (k, row).
inline void stage_columns(Few (*to)[17], const T* from, i64 rows, i64 step, i64 width, i64 k0) {
  const int k = threadIdx.x % DEPTH;
  from += threadIdx.x / DEPTH * step + k0 + k;
  EACH(n) {
    const int row = threadIdx.x / DEPTH + 256 / DEPTH * n;
    ((T*)to[k])[row] = row < rows && k0 + k < width ? *from : T(0);
    from += 256 / DEPTH * step;
  }
}
/// Of DEPTH rows SIDE columns: element (row, column).
inline void stage_rows(Few (*to)[17], const T* from, i64 rows, i64 step, i64 columns) {
  const int column = threadIdx.x % SIDE;
  from += threadIdx.x / SIDE * step + column;
  EACH(n) {
    const int row = threadIdx.x / SIDE + 256 / SIDE * n;
    ((T*)to[row])[column] = row < rows && column < columns ? *from : T(0);
    from += 256 / SIDE * step;
  }
}
/// sums += x·yᵀ.
inline void add_scores(T (&sums)[R][R], const T* x, i64 rows_x, i64 step_x, const T* y, i64 rows_y, i64 width, const Args& a) {
  for (i64 k0 = 0; k0 < width; k0 += DEPTH) {
    __syncthreads();
    stage_columns(left, x, rows_x, step_x, width, k0);
    stage_columns(right, y, rows_y, STEP(width), width, k0);
    __syncthreads();
#pragma unroll UNROLLED_BY
    for (int k = 0; k < DEPTH; ++k) {
      const Few l = left[k][ROW], r = right[k][COLUMN];
      EACH(i) EACH(j) sums[i][j] = fma(l.e[i], r.e[j], sums[i][j]);
    }
  }
}
/// sums += weightsᵀ·x; `edge`: only where `open`.
inline void add_weighted(T (&sums)[R][R], const T* x, i64 rows, i64 step, i64 columns, bool edge) {
  for (int k0 = 0; k0 < SIDE && k0 < rows; k0 += DEPTH) {
    __syncthreads();
    stage_rows(right, x + k0 * step, rows - k0, step, columns);
    __syncthreads();
    if (edge) {
#pragma unroll UNROLLED_BY
      for (int k = 0; k < DEPTH; ++k) {
        const Few l = weights[k0 + k][ROW], r = right[k][COLUMN];
        const Bits o = open[k0 + k][ROW];
        EACH(i) EACH(j) sums[i][j] = o.e[i] ? fma(l.e[i], r.e[j], sums[i][j]) : sums[i][j];
      }
    } else {
#pragma unroll UNROLLED_BY
      for (int k = 0; k < DEPTH; ++k) {
        const Few l = weights[k0 + k][ROW], r = right[k][COLUMN];
        EACH(i) EACH(j) sums[i][j] = fma(l.e[i], r.e[j], sums[i][j]);
      }
    }
  }
}
/// Which pairs of a tile see each other, and what the mask adds to their scores.
inline void stage_mask(i64 i0, i64 j0, i64 mask, const Args& a) {
  __syncthreads();
#pragma unroll 1
  for (int e = threadIdx.x; e < SIDE * SIDE; e += 256) {
    const i64 i = i0 + e / SIDE, j = j0 + e % SIDE;
    bool sees = i < a.queries && j < a.keys && !(CAUSAL && j > i);
#if MASK == 1
    if (sees) sees = ((const bool*)MASKS)[mask + i * a.mask_query + j * a.mask_key];
#elif MASK == 2
    const T added = sees ? ((const T*)MASKS)[mask + i * a.mask_query + j * a.mask_key] : T(0);
    sees = sees && added != NOTHING;
    ((T*)weights[e / SIDE])[e % SIDE] = added;
#endif
    ((bool*)open[e / SIDE])[e % SIDE] = sees;
  }
  __syncthreads();
}
/// Scores of the thread's pairs, scaled and masked.
inline void finish_scores(T (&s)[R][R], bool edge, const Args& a) {
  EACH(i) {
    EACH(j) s[i][j] *= (T)a.scale;
    if (edge) {
      const Bits o = open[ROW * R + i][COLUMN];
#if MASK == 2
      const Few added = weights[ROW * R + i][COLUMN];
      EACH(j) s[i][j] += added.e[j];
#endif
      EACH(j) s[i][j] = o.e[j] ? s[i][j] : NOTHING;
    }
  }
}
/// Weights of queries (rows) and keys (columns) to where `add_weighted` reads them, with `open`, which lies by queries before.
inline void keep(const T (&s)[R][R], bool over_keys, bool edge) {
  Bits o[R];
  if (over_keys && edge) EACH(i) o[i] = open[ROW * R + i][COLUMN];
  __syncthreads();
  EACH(i) {
    Few f;
    Bits b;
    EACH(j) f.e[j] = over_keys ? s[j][i] : s[i][j];
    weights[(over_keys ? COLUMN : ROW) * R + i][over_keys ? ROW : COLUMN] = f;
    if (!over_keys || !edge) continue;
    EACH(j) b.e[j] = o[j].e[i];
    open[COLUMN * R + i][ROW] = b;
  }
}
/// Whether a tile has pairs that do not see each other.
inline bool on_edge(i64 i0, i64 j0, const Args& a) { return MASK || i0 + SIDE > a.queries || j0 + SIDE > a.keys || (CAUSAL && j0 + SIDE > i0 + 1); }
inline i64 tiles(i64 n) { return (n + SIDE - 1) / SIDE; }
)";

const char* const kForward = R"(
KERNEL void attend(const Args a) {
  const i64 rows = tiles(a.queries), chunks = tiles(a.value_width);
  for (i64 item = blockIdx.x; item < a.heads * rows * chunks; item += gridDim.x) {
    const i64 first = item % chunks * SIDE, i0 = item / chunks % rows * SIDE, head = item / chunks / rows;
    begin_head(head, a);
    const T* q = (const T*)a.in[0] + (QUERIES_AT + i0 * APART) * a.width;
    const T* k = (const T*)a.in[1] + KEYS_AT * a.width;
    const T* v = (const T*)a.in[2] + KEYS_AT * a.value_width + first;
    T sums[R][R] = {}, top[R], total[R];
    EACH(i) top[i] = NOTHING, total[i] = 0;
    for (i64 j0 = 0; j0 < a.keys && !(CAUSAL && j0 >= i0 + SIDE); j0 += SIDE) {
      const bool edge = on_edge(i0, j0, a);
      T s[R][R] = {};
      if (edge) stage_mask(i0, j0, MASK_AT, a);
      add_scores(s, q, a.queries - i0, STEP(a.width), k + j0 * STEP(a.width), a.keys - j0, a.width, a);
      finish_scores(s, edge, a);
      EACH(i) {
        T best = top[i], sum = 0;
        EACH(j) best = s[i][j] > best ? s[i][j] : best;
#pragma unroll
        for (int apart = 8; apart > 0; apart /= 2) {
          const T other = __shfl_xor_sync(LANES, best, apart);
          best = other > best ? other : best;
        }
        const T base = best == NOTHING ? T(0) : best, kept = exp(top[i] - base);
        top[i] = best;
        EACH(j) sum += s[i][j] = exp(s[i][j] - base);
#pragma unroll
        for (int apart = 8; apart > 0; apart /= 2) sum += __shfl_xor_sync(LANES, sum, apart);
        total[i] = total[i] * kept + sum;
        EACH(j) sums[i][j] *= kept;
      }
      keep(s, true, edge);
      add_weighted(sums, v + j0 * STEP(a.value_width), a.keys - j0, STEP(a.value_width), a.value_width - first, edge);
    }
    EACH(i) {
      const i64 row = i0 + ROW * R + i;
      if (row >= a.queries) continue;
      EACH(j) if (const i64 column = first + COLUMN * R + j; column < a.value_width) ((T*)a.out[0])[(Y_AT + row * BESIDE) * a.value_width + column] = total[i] == 0 ? T(0) : sums[i][j] / total[i];
      if (a.out[1] && first == 0 && COLUMN == 0) ((T*)a.out[1])[LINES_AT + row] = (top[i] == NOTHING ? T(0) : top[i]) + log(total[i]);
    }
  }
}
)";

const char* const kGradient = R"(
/// Σ dy·y of every query, which all its scores share.
KERNEL void own(const Args a) {
  EACH_LINE(line) {
    T sum = 0;
    const i64 at = (ROW_OF(line / a.queries, a.queries, BESIDE) + line % a.queries * BESIDE) * a.n;
    EACH_OF(k, a.n) sum += ((const T*)a.in[5])[at + k] * ((const T*)a.in[3])[at + k];
    sum = across(sum, Add());
    if (threadIdx.x % WIDTH == 0) ((T*)a.scratch)[line] = sum;
  }
}
/// Weights and slopes of a tile, from its scores and dy·vᵀ.
inline void slopes(T (&s)[R][R], T (&d)[R][R], i64 i0, i64 j0, bool edge, const Args& a) {
  const T* q = (const T*)a.in[0] + (QUERIES_AT + i0 * APART) * a.width;
  const T* k = (const T*)a.in[1] + (KEYS_AT + j0 * APART) * a.width;
  const T* v = (const T*)a.in[2] + (KEYS_AT + j0 * APART) * a.value_width;
  const T* dy = (const T*)a.in[5] + (Y_AT + i0 * BESIDE) * a.value_width;
  EACH(i) EACH(j) s[i][j] = d[i][j] = 0;
  if (edge) stage_mask(i0, j0, MASK_AT, a);
  add_scores(s, q, a.queries - i0, STEP(a.width), k, a.keys - j0, a.width, a);
  add_scores(d, dy, a.queries - i0, Y_STEP, v, a.keys - j0, a.value_width, a);
  finish_scores(s, edge, a);
  EACH(i) {
    const i64 row = i0 + ROW * R + i, at = LINES_AT + row;
    const T top = row < a.queries ? ((const T*)a.in[4])[at] : T(0), mine = row < a.queries ? ((const T*)a.scratch)[at] : T(0), base = top == NOTHING ? T(0) : top;
    EACH(j) {
      s[i][j] = s[i][j] == NOTHING ? T(0) : exp(s[i][j] - base);
      d[i][j] = s[i][j] == 0 ? T(0) : s[i][j] * (d[i][j] - mine);
    }
  }
}
KERNEL void of_keys(const Args a) {
  const i64 columns = tiles(a.keys), chunks = tiles(a.width > a.value_width ? a.width : a.value_width);
  for (i64 item = blockIdx.x; item < a.heads * columns * chunks; item += gridDim.x) {
    const i64 first = item % chunks * SIDE, j0 = item / chunks % columns * SIDE, head = item / chunks / columns;
    begin_head(head, a);
    const T* q = (const T*)a.in[0] + QUERIES_AT * a.width + first;
    const T* dy = (const T*)a.in[5] + Y_AT * a.value_width + first;
    T dk[R][R] = {}, dv[R][R] = {};
    for (i64 i0 = CAUSAL ? j0 : 0; i0 < a.queries; i0 += SIDE) {
      const bool edge = on_edge(i0, j0, a);
      T s[R][R], d[R][R];
      slopes(s, d, i0, j0, edge, a);
      keep(s, false, edge);
      add_weighted(dv, dy + i0 * Y_STEP, a.queries - i0, Y_STEP, a.value_width - first, edge);
      EACH(i) EACH(j) d[i][j] *= (T)a.scale;
      keep(d, false, edge);
      add_weighted(dk, q + i0 * STEP(a.width), a.queries - i0, STEP(a.width), a.width - first, edge);
    }
    EACH(i) {
      const i64 row = j0 + ROW * R + i;
      if (row >= a.keys) continue;
      EACH(j) {
        const i64 column = first + COLUMN * R + j;
        if (column < a.width) ((T*)a.out[1])[(KEYS_AT + row * APART) * a.width + column] = dk[i][j];
        if (column < a.value_width) ((T*)a.out[2])[(KEYS_AT + row * APART) * a.value_width + column] = dv[i][j];
      }
    }
  }
}
KERNEL void of_queries(const Args a) {
  const i64 rows = tiles(a.queries), chunks = tiles(a.width);
  for (i64 item = blockIdx.x; item < a.heads * rows * chunks; item += gridDim.x) {
    const i64 first = item % chunks * SIDE, i0 = item / chunks % rows * SIDE, head = item / chunks / rows;
    begin_head(head, a);
    const T* k = (const T*)a.in[1] + KEYS_AT * a.width + first;
    const bool scores = a.out[3] && first == 0;
    T dq[R][R] = {};
    for (i64 j0 = 0; j0 < a.keys && (scores || !(CAUSAL && j0 >= i0 + SIDE)); j0 += SIDE) {
      const bool edge = on_edge(i0, j0, a);
      T s[R][R], d[R][R];
      slopes(s, d, i0, j0, edge, a);
      EACH(i) {
        const i64 row = i0 + ROW * R + i;
        EACH(j) {
          if (const i64 column = j0 + COLUMN * R + j; scores && row < a.queries && column < a.keys) ((T*)a.out[3])[(LINES_AT + row) * a.keys + column] = d[i][j];
          d[i][j] *= (T)a.scale;
        }
      }
      keep(d, true, edge);
      add_weighted(dq, k + j0 * STEP(a.width), a.keys - j0, STEP(a.width), a.width - first, edge);
    }
    EACH(i) {
      const i64 row = i0 + ROW * R + i;
      EACH(j) if (const i64 column = first + COLUMN * R + j; row < a.queries && column < a.width) ((T*)a.out[0])[(QUERIES_AT + row * APART) * a.width + column] = dq[i][j];
    }
  }
}
)";

struct Problem : AttentionLayout {
  Problem(const KernelRequest& r, std::size_t mask)
      : AttentionLayout(*r.attributes, r.inputs[0].shape, r.inputs[1].shape, r.inputs[2].shape), mask(mask), side(256 / static_cast<std::int64_t>(size_of(r.inputs[0].dtype))) {}
  Grid grid(std::int64_t places, std::int64_t features) const { return {std::min<std::int64_t>(heads * up(places, side) * up(features, side), 16384), 256}; }
  std::size_t mask;  ///< the input
  std::int64_t side;
};

Generated head_of(const KernelRequest& r, const Problem& p) {
  Generated g(r);
  g.type("T", r.inputs[0].dtype).head(p.causal ? "#define CAUSAL 1" : "#define CAUSAL 0");
  g.number("heads", p.heads).number("queries", p.queries).number("keys", p.keys).number("width", p.width).number("value_width", p.value_width).real("scale", p.scale);
  if (heads_behind(*r.attributes)) g.number("beside", p.beside).head(std::string("#define BESIDE a.beside\n#define APART ") + (p.apart > p.beside ? "(3 * a.beside)" : "a.beside") + "\n#define UNROLLED_BY 2");  // of four at once registers are spilled
  else g.head("#define BESIDE 1\n#define APART 1\n#define UNROLLED_BY 4");
  const bool masked = p.mask < r.inputs.size() && r.inputs[p.mask].shape != Extents{0};
  std::string offset = "0";
  if (masked) {
    MaskSteps steps(p, r.inputs[p.mask].shape);
    g.number("mask_query", steps.query).number("mask_key", steps.key).head("#define MASKS a.in[" + std::to_string(p.mask) + "]");
    std::int64_t below = 1;
    for (std::size_t i = p.lead.size(); i-- > 0; below *= p.lead[i]) {
      const std::string k = std::to_string(i);
      g.number("below" + k, std::max<std::int64_t>(below, 1)).number("size" + k, std::max<std::int64_t>(p.lead[i], 1)).number("step" + k, steps.of_lead[i]);
      offset += " + (head) / a.below" + k + " % a.size" + k + " * a.step" + k;
    }
  }
  g.head("#define MASK_OF(head) (" + offset + ")").head(std::string("#define MASK ") + (!masked ? "0" : r.inputs[p.mask].dtype == boolean ? "1" : "2"));
  return g;
}

std::unique_ptr<Prepared> forward(const KernelRequest& r, const Problem& p, GpuCode& code) {
  return head_of(r, p).body(kTiles).body(kForward).launch("attend", p.grid(p.queries, p.value_width)).prepare(code);
}

std::unique_ptr<Prepared> gradient(const KernelRequest& r, const Problem& p, GpuCode& code) {
  Generated g = head_of(r, p);
  Grid rows = g.lines(p.heads * p.queries, p.value_width, 1);
  g.head("#undef LANES").body(kTiles).body(kGradient).launch("own", rows);
  return g.launch("of_keys", p.grid(p.keys, std::max(p.width, p.value_width))).launch("of_queries", p.grid(p.queries, p.width)).prepare(code);
}

Kernel kernel(const GpuCodeRef& code, const char* op, std::size_t mask, bool backward) {
  return {.name = "nvrtc_attention", .op = op,
          .supports = [=](const KernelRequest& r) {
            Support s = takes_on_gpu(r, {f32, f64});
            if (s.ok && (r.inputs[0].shape.back() == 0 || r.inputs[2].shape.back() == 0)) return refuse("there are no features, by whose chunks it goes");
            s.in_place = false;
            if (s.ok && backward) s.scratch_bytes = r.inputs[4].elements() * static_cast<std::int64_t>(size_of(r.inputs[4].dtype));
            return s;
          },
          .prepare = [=](const KernelRequest& r) { return backward ? gradient(r, Problem(r, mask), *code) : forward(r, Problem(r, mask), *code); }};
}

}  // namespace

std::vector<Kernel> scaled_dot_product_attention_generated_cuda(const GpuCodeRef& code) {
  return {kernel(code, "scaled_dot_product_attention", 3, false), kernel(code, "scaled_dot_product_attention_gradient", 6, true)};
}

}  // namespace belfry
