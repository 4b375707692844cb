// Gradients of attention in f32 that may be rounded to TF32, on tensor cores: cuDNN has none.
#include <belfry/ops/cuda_kernels.h>

#include <algorithm>
#include <string>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/scaled_dot_product_attention/formulas.h>

namespace belfry {
namespace {

/// A block works on 64 queries and 64 keys at a time, a warp on 16 rows and 32 columns of what is made of them, as four products of 16 x 8.
const char* const kTiles = R"(
// Two blocks a multiprocessor.
#ifdef __CUDACC_RTC__
#undef KERNEL
#define KERNEL extern "C" __global__ __launch_bounds__(256, 2)
/// To the nearest that TF32 has.
inline float to_tf32(float x) {
  u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}
/// c (16, 8) += a (16, 8)·b (8, 8), of which each lane of the warp has a part.
inline void multiply_in_warp(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}
#endif
/// From one place of a head to the next.
#define STEP(features) (BESIDE * (features))
#define ROW_OF(head, places) ((head) / BESIDE * (places) * BESIDE + (head) % BESIDE)
/// Where the block's head begins, which no register keeps: rows of features of its queries and keys, and what there is one of per query.
__shared__ i64 begins[3];
#define QUERIES_AT begins[0]
#define KEYS_AT begins[1]
#define LINES_AT begins[2]
inline void begin_head(i64 head, const Args& a) {
  __syncthreads();
  if (threadIdx.x == 0) begins[0] = ROW_OF(head, a.queries), begins[1] = ROW_OF(head, a.keys), begins[2] = head * a.queries;
  __syncthreads();
}
#define SIDE 64
#define DEPTH 16
#define LANE (threadIdx.x % 4)
#define GROUP (threadIdx.x % 32 / 4)
#define TOP (threadIdx.x / 64 * 16)
#define LEFT (threadIdx.x / 32 % 2 * 32)
#define UNROLL _Pragma("unroll")
// What a thread has of a tile: e[i][j], j of the product i.
#define EACH_ELEMENT(i, j) UNROLL for (int i = 0; i < 4; ++i) UNROLL for (int j = 0; j < 4; ++j)
#define ROW(j) (TOP + GROUP + j / 2 * 8)
#define COLUMN(i, j) (LEFT + i * 8 + LANE * 2 + j % 2)
struct Tile { float e[4][4]; };
typedef float Row[72];  // lanes of a warp read from a bank each
__shared__ Row left[DEPTH], right[DEPTH], weights[SIDE];

/// Of SIDE rows the elements from k0 on: element (k, row).
inline void stage_columns(Row* to, const float* from, int rows, int step, int width, int k0) {
  const int k = threadIdx.x % DEPTH;
  from += threadIdx.x / DEPTH * step + k0 + k;
  UNROLL for (int n = 0; n < 4; ++n) {
    const int row = threadIdx.x / DEPTH + 16 * n;
    to[k][row] = row < rows && k0 + k < width ? to_tf32(*from) : 0.f;
    from += 16 * step;
  }
}
/// Of DEPTH rows SIDE columns: element (row, column).
inline void stage_rows(Row* to, const float* from, int rows, int step, int columns) {
  const int column = threadIdx.x % SIDE;
  from += threadIdx.x / SIDE * step + column;
  UNROLL for (int n = 0; n < 4; ++n) {
    const int row = threadIdx.x / SIDE + 4 * n;
    to[row][column] = row < rows && column < columns ? to_tf32(*from) : 0.f;
    from += 4 * step;
  }
}
/// sums += xᵀ·y over DEPTH rows.
inline void add_product(Tile& sums, const Row* x, const Row* y) {
  UNROLL for (int k = LANE; k < DEPTH; k += 8) {
    const float a[4] = {x[k][TOP + GROUP], x[k][TOP + GROUP + 8], x[k + 4][TOP + GROUP], x[k + 4][TOP + GROUP + 8]};
    UNROLL for (int i = 0; i < 4; ++i) {
      const float b[2] = {y[k][LEFT + i * 8 + GROUP], y[k + 4][LEFT + i * 8 + GROUP]};
      multiply_in_warp(sums.e[i], a, b);
    }
  }
}
/// sums += x·yᵀ.
inline void add_scores(Tile& sums, const float* x, int rows_x, const float* y, int rows_y, int step, int width) {
  for (int k0 = 0; k0 < width; k0 += DEPTH) {
    __syncthreads();
    stage_columns(left, x, rows_x, step, width, k0);
    stage_columns(right, y, rows_y, step, width, k0);
    __syncthreads();
    add_product(sums, left, right);
  }
}
/// sums += weightsᵀ·x.
inline void add_weighted(Tile& sums, const float* x, int rows, int step, int columns) {
  for (int k0 = 0; k0 < SIDE && k0 < rows; k0 += DEPTH) {
    __syncthreads();
    stage_rows(right, x + k0 * step, rows - k0, step, columns);
    __syncthreads();
    add_product(sums, weights + k0, right);
  }
}
/// To where `add_weighted` reads them, which sums over queries, or over keys.
inline void keep(const Tile& t, bool over_keys) {
  __syncthreads();
  EACH_ELEMENT(i, j) weights[over_keys ? COLUMN(i, j) : ROW(j)][over_keys ? ROW(j) : COLUMN(i, j)] = to_tf32(t.e[i][j]);
}
/// Weights and slopes of a tile, from its scores and dy·vᵀ; nothing where a query does not see a key.
inline void slopes(Tile& s, Tile& d, int i0, int j0, const Args& a) {
  const float* q = (const float*)a.in[0] + (QUERIES_AT + i0 * BESIDE) * a.width;
  const float* k = (const float*)a.in[1] + (KEYS_AT + j0 * BESIDE) * a.width;
  const float* v = (const float*)a.in[2] + (KEYS_AT + j0 * BESIDE) * a.value_width;
  const float* dy = (const float*)a.in[5] + (QUERIES_AT + i0 * BESIDE) * a.value_width;
  EACH_ELEMENT(i, j) s.e[i][j] = d.e[i][j] = 0;
  add_scores(s, q, a.queries - i0, k, a.keys - j0, STEP(a.width), a.width);
  add_scores(d, dy, a.queries - i0, v, a.keys - j0, STEP(a.value_width), a.value_width);
  UNROLL for (int half = 0; half < 4; half += 2) {
    const int row = i0 + ROW(half);
    const i64 at = LINES_AT + row;
    const float top = row < a.queries ? ((const float*)a.in[4])[at] : 0.f, mine = row < a.queries ? ((const float*)a.scratch)[at] : 0.f;
    UNROLL for (int i = 0; i < 4; ++i) UNROLL for (int j = half; j < half + 2; ++j) {
      const int column = j0 + COLUMN(i, j);
      const bool sees = row < a.queries && column < a.keys && !(CAUSAL && column > row);
      s.e[i][j] = sees ? exp(s.e[i][j] * (float)a.scale - top) : 0.f;
      d.e[i][j] = s.e[i][j] == 0 ? 0.f : s.e[i][j] * (d.e[i][j] - mine) * (float)a.scale;
    }
  }
}
/// Of a head's gradient rows from r0 on and columns from `first` on.
inline void store(const Tile& t, float* to, int r0, int first, int places, int features, const Args& a) {
  EACH_ELEMENT(i, j) {
    const int row = r0 + ROW(j), column = first + COLUMN(i, j);
    if (row < places && column < features) to[row * STEP(features) + column] = t.e[i][j];
  }
}
inline int tiles(i64 n) { return (int)((n + SIDE - 1) / SIDE); }

/// Σ dy·y of every query, which all its scores share.
KERNEL void own(const Args a) {
  EACH_LINE(line) {
    float sum = 0;
    const i64 at = (ROW_OF(line / a.queries, a.queries) + line % a.queries * BESIDE) * a.n;
    EACH_OF(k, a.n) sum += ((const float*)a.in[5])[at + k] * ((const float*)a.in[3])[at + k];
    sum = across(sum, Add());
    if (threadIdx.x % WIDTH == 0) ((float*)a.scratch)[line] = sum;
  }
}
KERNEL void of_keys(const Args a) {
  const int columns = tiles(a.keys), chunks = tiles(a.width > a.value_width ? a.width : a.value_width);
  for (i64 item = blockIdx.x; item < a.heads * columns * chunks; item += gridDim.x) {
    const int first = (int)(item % chunks) * SIDE, j0 = (int)(item / chunks % columns) * SIDE, head = (int)(item / chunks / columns);
    begin_head(head, a);
    const float* q = (const float*)a.in[0] + QUERIES_AT * a.width + first;
    const float* dy = (const float*)a.in[5] + QUERIES_AT * a.value_width + first;
    Tile dk = {}, dv = {};
    for (int i0 = CAUSAL ? j0 : 0; i0 < a.queries; i0 += SIDE) {
      Tile s, d;
      slopes(s, d, i0, j0, a);
      keep(s, false);
      add_weighted(dv, dy + i0 * STEP(a.value_width), a.queries - i0, STEP(a.value_width), a.value_width - first);
      keep(d, false);
      add_weighted(dk, q + i0 * STEP(a.width), a.queries - i0, STEP(a.width), a.width - first);
    }
    store(dk, (float*)a.out[1] + KEYS_AT * a.width, j0, first, a.keys, a.width, a);
    store(dv, (float*)a.out[2] + KEYS_AT * a.value_width, j0, first, a.keys, a.value_width, a);
  }
}
KERNEL void of_queries(const Args a) {
  const int rows = tiles(a.queries), chunks = tiles(a.width);
  for (i64 item = blockIdx.x; item < a.heads * rows * chunks; item += gridDim.x) {
    const int first = (int)(item % chunks) * SIDE, i0 = (int)(item / chunks % rows) * SIDE, head = (int)(item / chunks / rows);
    begin_head(head, a);
    const float* k = (const float*)a.in[1] + KEYS_AT * a.width + first;
    Tile dq = {};
    for (int j0 = 0; j0 < a.keys && !(CAUSAL && j0 >= i0 + SIDE); j0 += SIDE) {
      Tile s, d;
      slopes(s, d, i0, j0, a);
      keep(d, true);
      add_weighted(dq, k + j0 * STEP(a.width), a.keys - j0, STEP(a.width), a.width - first);
    }
    store(dq, (float*)a.out[0] + QUERIES_AT * a.width, i0, first, a.queries, a.width, a);
  }
}
)";

constexpr std::int64_t kSide = 64;

std::unique_ptr<Prepared> gradient(const KernelRequest& r, const AttentionLayout& p, GpuCode& code) {
  Generated g(r);
  g.head(p.causal ? "#define CAUSAL 1" : "#define CAUSAL 0");
  g.number("heads", p.heads).number("queries", p.queries).number("keys", p.keys).number("width", p.width).number("value_width", p.value_width).real("scale", p.scale);
  if (heads_behind(*r.attributes)) g.number("beside", p.beside).head("#define BESIDE a.beside");
  else g.head("#define BESIDE 1");
  auto grid = [&](std::int64_t places, std::int64_t features) { return Grid{std::min<std::int64_t>(p.heads * up(places, kSide) * up(features, kSide), 16384), 256}; };
  const Grid rows = g.lines(p.heads * p.queries, p.value_width, 1);
  g.body(kTiles).launch("own", rows);
  return g.launch("of_keys", grid(p.keys, std::max(p.width, p.value_width))).launch("of_queries", grid(p.queries, p.width)).prepare(code);
}

AttentionLayout layout_of(const KernelRequest& r) { return {*r.attributes, r.inputs[0].shape, r.inputs[1].shape, r.inputs[2].shape}; }

Support supports(const KernelRequest& r) {
  Support s = takes_on_gpu(r, {f32});
  if (!s.ok) return s;
  const AttentionLayout p = layout_of(r);
  if (r.inputs.size() > 6 && r.inputs[6].shape != Extents{0}) return refuse("it has a mask, and what a query does not see is multiplied by 0 here");
  if (p.causal && p.keys > p.queries) return refuse("no query sees the last keys, and what they hold is multiplied by 0 here");
  if (std::max({r.inputs[0].elements(), r.inputs[1].elements(), r.inputs[2].elements(), r.inputs[3].elements()}) >= std::int64_t{1} << 31) return refuse("a tensor has more elements than it counts");
  if (r.wanted[3]) return refuse("somebody reads the gradients of the scores, which it keeps to itself");
  s.in_place = false;
  s.scratch_bytes = r.inputs[4].elements() * 4;
  return s;
}

}  // namespace

std::vector<Kernel> attention_gradient_tf32_cuda(const GpuCodeRef& code) {
  return {{.name = "nvrtc_attention_tf32", .op = "scaled_dot_product_attention_gradient", .supports = supports,
           .prepare = [=](const KernelRequest& r) { return gradient(r, layout_of(r), *code); }, .leeway = {.tf32 = true}}};
}

}  // namespace belfry
