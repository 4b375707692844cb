// Gradients of attention in f32 that may be rounded to TF32, on tensor cores: cuDNN has none.
#include <belfry/ops/cuda_kernels.h>

#include <algorithm>
#include <string>

#include <belfry/ops/scaled_dot_product_attention/attention_tf32_cuda_internal.h>

namespace belfry {
namespace {

/// A block works on 64 queries and 64 keys at a time, a warp on 16 keys and 32 queries of them. What a warp makes of these it multiplies at once, as it has it;
/// only what sums over keys goes by way of shared memory. Rows are padded, and keys and features dealt to lanes, so that lanes of a warp read and write a bank each.
const char* const kTiles = R"(
typedef float Rows[SIDE][SIDE + 4];
/// Of each query: the logarithm of its sum, and what all its slopes share.
struct alignas(16) Tiles { Rows keys, values, queries, dy, slopes; float weights[SIDE / 2][SIDE + 4], top[SIDE], own[SIDE]; };
static_assert(sizeof(Tiles) == SHARED, "bytes that a launch asks for");
#ifdef __CUDACC_RTC__
extern __shared__ Tiles all_tiles[];
#else
__shared__ Tiles all_tiles[1];
#endif
#define TILES all_tiles[0]
typedef Pack<float, 2> Two;
/// From one place of a head to the next: of q, k and v, and of y.
#define STEP(features) (int)(APART * (features))
#define Y_STEP (int)(BESIDE * a.value_width)
#define ROW_OF(head, places, apart) ((head) / BESIDE * (places) * (apart) + (head) % BESIDE)
/// Where the block's head begins, which no register keeps: rows of features of its queries, keys and y, and what there is one of per query.
__shared__ i64 begins[4];
#define QUERIES_AT begins[0]
#define KEYS_AT begins[1]
#define Y_AT begins[2]
#define LINES_AT begins[3]
inline void begin_head(i64 head, const Args& a) {
  __syncthreads();
  if (threadIdx.x == 0) begins[0] = ROW_OF(head, a.queries, APART), begins[1] = ROW_OF(head, a.keys, APART), begins[2] = ROW_OF(head, a.queries, BESIDE), begins[3] = head * a.queries;
  __syncthreads();
}
// Of thread t: its place in the warp, and where the warp's 16 rows and 32 columns of a tile begin.
#define TURN (t % 32)
#define LANE (t % 4)
#define GROUP (t % 32 / 4)
#define TOP (t / 32 % 4 * 16)
#define LEFT (t / 128 * 32)
/// Column g of the product j of four that make 32 features is feature FEATURE(g) + j: a lane has runs of four, two lanes 32 bytes.
#define FEATURE(g) ((g) / 4 * 16 + ((g) / 2 % 2 ^ (g) % 2 * 3) * 4)
/// Whether all rows begin at multiples of 16 bytes.
inline bool in_fours(const Args& a) {
  return (((u64)a.in[0] | (u64)a.in[1] | (u64)a.in[2] | (u64)a.in[3] | (u64)a.in[5] | (u64)a.out[0] | (u64)a.out[1] | (u64)a.out[2] | (u64)(a.width | a.value_width) * 4) & 15) == 0;
}

/// SIDE rows of SIDE columns, zeros where there are none.
inline void stage(Rows& to, const float* from, int rows, int step, int columns, bool fours) {
  if (fours) {
    const u32 t = thread_now();
    int row = t / 16;
    const int column = t % 16 * 4;
    from += (i64)row * step + column;
    UNROLL for (int n = 0; n < 4; ++n) {
      copy_four(&to[t / 16 + 16 * n][column], from, row + 16 * n < rows && column < columns);
      from += 16 * (i64)step;
    }
  } else {
#pragma unroll 1
    for (int row = threadIdx.x / SIDE, column = threadIdx.x % SIDE; row < SIDE; row += 4) to[row][column] = row < rows && column < columns ? to_tf32(from[(i64)row * step + column]) : 0.f;
  }
}
/// What this thread has copied.
inline void round_copies(Rows& rows) {
  const u32 t = thread_now();
  UNROLL for (int n = 0; n < 4; ++n) {
    Four* const at = (Four*)&rows[t / 16 + 16 * n][t % 16 * 4];
    Four x = *at;
    UNROLL for (int e = 0; e < 4; ++e) x.e[e] = to_tf32(x.e[e]);
    *at = x;
  }
}
inline void stage_keys(int j0, int from, bool fours, const Args& a) {
  stage(TILES.keys, (const float*)a.in[1] + (KEYS_AT + j0 * APART) * a.width + from, (int)a.keys - j0, STEP(a.width), (int)a.width - from, fours);
  stage(TILES.values, (const float*)a.in[2] + (KEYS_AT + j0 * APART) * a.value_width + from, (int)a.keys - j0, STEP(a.value_width), (int)a.value_width - from, fours);
}
inline void stage_queries(int i0, int from, bool fours, bool own, const Args& a) {
  stage(TILES.queries, (const float*)a.in[0] + (QUERIES_AT + i0 * APART) * a.width + from, (int)a.queries - i0, STEP(a.width), (int)a.width - from, fours);
  stage(TILES.dy, (const float*)a.in[5] + (Y_AT + i0 * BESIDE) * a.value_width + from, (int)a.queries - i0, Y_STEP, (int)a.value_width - from, fours);
  const int row = i0 + threadIdx.x % SIDE;
  if (threadIdx.x < SIDE) copy_one(&TILES.top[threadIdx.x], (const float*)a.in[4] + LINES_AT + row, row < a.queries);
  else if (own && threadIdx.x < 2 * SIDE) copy_one(&TILES.own[threadIdx.x - SIDE], (const float*)a.scratch + LINES_AT + row, row < a.queries);
}
/// Of four columns; sixteen lanes have those of a row.
inline float dot(const Four& x, const Four& y) { return x.e[0] * y.e[0] + x.e[1] * y.e[1] + x.e[2] * y.e[2] + x.e[3] * y.e[3]; }
inline float across_sixteen(float sum) {
  UNROLL for (int apart = 8; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
  return sum;
}
/// Σ dy·y of the queries from i0 on, with the dy that this thread has copied: to shared memory, and where it `keeps` them to where `own` leaves them.
inline void add_own(const Four (&y)[4], int i0, bool keeps, const Args& a) {
  const u32 t = thread_now();
  UNROLL for (int n = 0; n < 4; ++n) {
    const int row = t / 16 + 16 * n;
    const float sum = across_sixteen(0.f + dot(*(const Four*)&TILES.dy[row][t % 16 * 4], y[n]));
    if (t % 16 > 0) continue;
    TILES.own[row] = sum;
    if (keeps && i0 + row < a.queries) ((float*)a.scratch)[LINES_AT + i0 + row] = sum;
  }
}
/// sums += x·yᵀ, of which the warp has 16 rows of x and 32 of y.
inline void add_scores(float (&sums)[4][4], const Rows& x, const Rows& y, int features) {
  const u32 t = thread_now();
  const float* const left = &x[TOP + TURN % 16][TURN / 16 * 4];
  const float* const right = &y[LEFT + TURN / 16 * 8 + TURN % 8][TURN / 8 % 2 * 4];
#pragma unroll 1
  for (int k0 = 0; k0 < SIDE && k0 < features; k0 += 32)
    UNROLL for (int k = k0; k < k0 + 32; k += 8) {
      float l[4], r[2][4];
      load_matrices(l, left + k);
      load_matrices(r[0], right + k);
      load_matrices(r[1], right + 16 * (SIDE + 4) + k);
      UNROLL for (int i = 0; i < 4; ++i) {
        const float b[2] = {r[i / 2][i % 2 * 2], r[i / 2][i % 2 * 2 + 1]};
        multiply_in_warp(sums[i], l, b);
      }
    }
}
/// sums (16, 32) += weights (16, 8)·x: columns l and l + 4 of the weights are of rows 2l and 2l + 1 of x.
inline void add_weighted(float (*sums)[4], const float (&weights)[4], const float* x) {
  const Four even = *(const Four*)x, odd = *(const Four*)(x + SIDE + 4);
  UNROLL for (int i = 0; i < 4; ++i) {
    const float b[2] = {even.e[i], odd.e[i]};
    multiply_in_warp(sums[i], weights, b);
  }
}
/// Rows from r0 on and 32 columns from `first` on of a tile's, added to what is there, or not.
inline void store(const float (*sums)[4], float* to, int r0, int first, int rows, int step, int columns, bool adds, bool fours) {
  const u32 t = thread_now();
  r0 += TOP + GROUP;
  to += (i64)r0 * step + first;
  UNROLL for (int j = 0; j < 4; ++j) {
    const int column = FEATURE(2 * LANE + j % 2);
    float* const at = to + j / 2 * 8 * step + column;
    if (r0 + j / 2 * 8 >= rows) continue;
    if (fours) {
      if (first + column >= columns) continue;
      Four x = {{sums[0][j], sums[1][j], sums[2][j], sums[3][j]}};
      if (adds) {
        const Four was = *(const Four*)at;
        UNROLL for (int e = 0; e < 4; ++e) x.e[e] = was.e[e] + x.e[e];
      }
      *(Four*)at = x;
    } else {
      UNROLL for (int e = 0; e < 4; ++e) if (first + column + e < columns) at[e] = adds ? at[e] + sums[e][j] : sums[e][j];
    }
  }
}

/// Weights and slopes of a warp's part of a tile, from its scores and dy·vᵀ; nothing where a query does not see a key.
inline void slopes(float (&s)[4][4], float (&d)[4][4], int i0, int j0, const Args& a) {
  const u32 t = thread_now();
  const int at = LEFT + LANE * 2, key = TOP + GROUP, queries = (int)a.queries - i0 - at, keys = (int)a.keys - j0 - key, before = i0 + at - j0 - key;
  const float scale = (float)a.scale;
  UNROLL for (int i = 0; i < 4; ++i) {
    const Two top = *(const Two*)&TILES.top[at + i * 8], own = *(const Two*)&TILES.own[at + i * 8];
    UNROLL for (int j = 0; j < 4; ++j) {
      const int query = i * 8 + j % 2, key = j / 2 * 8;
      const bool sees = query < queries && key < keys && !(CAUSAL && key - query > before);
      const float weight = exp(sees ? s[i][j] * scale - top.e[j % 2] : NOTHING);
      d[i][j] = to_tf32(weight * (weight == 0 ? 0.f : d[i][j] - own.e[j % 2]) * scale);
      s[i][j] = to_tf32(weight);
    }
  }
}
/// Gradients of the keys from j0 to past_keys, and of the queries from i_first to past_queries, in the chunk `first` of features: what these pairs give.
template <bool OF_KEYS, bool OF_QUERIES> inline void walk(int first, int j0, int past_keys, int i_first, int past_queries, const Args& a) {
  const int chunks = tiles(a.width > a.value_width ? a.width : a.value_width);
  const bool fours = in_fours(a), later = threadIdx.x >= 128, sums_own = OF_KEYS && OF_QUERIES && fours && chunks == 1;  // as `own` does, which is not launched then
  int i0 = CAUSAL && j0 > i_first ? j0 : i_first, keys_here = -1, queries_here = -1, was = -1;
  bool adds = false;
  float sums[8][4] = {};  // of dv in the warps of the earlier queries, of dk in the others
  for (;;) {
    const bool more = j0 < past_keys, fresh_keys = keys_here != j0, fresh_queries = queries_here != i0;
    if (more && fresh_queries) stage_queries(i0, (first + 1) % chunks * SIDE, fours, !sums_own || j0 > 0, a);
    if (OF_QUERIES && was >= 0) {  // of the pair before this one, while what this one reads is on its way
      const u32 t = thread_now();
      float dq[4][4] = {};
      UNROLL for (int k = 0; k < SIDE; k += 8) {
        float l[4];
        load_matrices(l, &TILES.slopes[TOP + TURN % 16][TURN / 16 * 4 + k]);
        add_weighted(dq, l, &TILES.keys[k + LANE * 2][LEFT + FEATURE(GROUP)]);
      }
      store(dq, (float*)a.out[0] + QUERIES_AT * a.width, was, first * SIDE + LEFT, (int)a.queries, STEP(a.width), (int)a.width, adds, fours);
    }
    if (!more) return;
    if (fresh_keys) {
      __syncthreads();
      stage_keys(j0, (first + 1) % chunks * SIDE, fours, a);
    }
    float s[4][4] = {}, d[4][4] = {};
    for (int turn = 1;; ++turn) {  // the chunk that is wanted comes last, and stays
      const int from = (first + turn) % chunks * SIDE;
      if (turn > 1) {
        __syncthreads();
        stage_keys(j0, from, fours, a), stage_queries(i0, from, fours, true, a);
      }
      Four y[4] = {};
      if (sums_own && j0 == 0) UNROLL for (int n = 0; n < 4; ++n) {
        const u32 t = thread_now();
        const int row = i0 + t / 16 + 16 * n, column = t % 16 * 4;
        if (row < a.queries && column < a.value_width) y[n] = *(const Four*)((const float*)a.in[3] + (Y_AT + row * BESIDE) * a.value_width + column);
      }
      await_copies();
      if (sums_own && j0 == 0) add_own(y, i0, past_keys > SIDE, a);
      if (fours && (fresh_keys || turn > 1)) round_copies(TILES.keys), round_copies(TILES.values);
      if (fours && (fresh_queries || turn > 1)) round_copies(TILES.queries), round_copies(TILES.dy);
      __syncthreads();
      add_scores(s, TILES.keys, TILES.queries, (int)a.width - from);
      add_scores(d, TILES.values, TILES.dy, (int)a.value_width - from);
      if (turn == chunks) break;
    }
    slopes(s, d, i0, j0, a);
    const u32 t = thread_now();
    const float* const x = later ? TILES.queries[LANE * 2] : TILES.dy[LANE * 2];
    const int column = TOP + GROUP / 2 + GROUP % 2 * 4;
    UNROLL for (int i = 0; i < 4; ++i) {
      const int row = i * 8 + LANE * 2;
      UNROLL for (int j = 0; j < 4; ++j) TILES.slopes[LEFT + row + j % 2][column + j / 2 * 8] = d[i][j];
      if (OF_KEYS && later) UNROLL for (int j = 0; j < 4; ++j) TILES.weights[row + j % 2][column + j / 2 * 8] = s[i][j];
    }
    if (OF_KEYS) UNROLL for (int i = 0; i < 4; ++i) {
      const float mine[4] = {later ? d[i][0] : s[i][0], later ? d[i][2] : s[i][2], later ? d[i][1] : s[i][1], later ? d[i][3] : s[i][3]};
      UNROLL for (int half = 0; half < 2; ++half) add_weighted(sums + 4 * half, mine, x + (LEFT + i * 8) * (SIDE + 4) + FEATURE(GROUP) + 32 * half);
    }
    __syncthreads();
    if (OF_KEYS) {
      const float* const other = &(later ? TILES.slopes : TILES.weights)[LANE * 2][column];
      UNROLL for (int i = 0; i < 4; ++i) {
        const float* const at = other + i * 8 * (SIDE + 4);
        const float others[4] = {at[0], at[8], at[SIDE + 4], at[SIDE + 12]};
        UNROLL for (int half = 0; half < 2; ++half) add_weighted(sums + 4 * half, others, x + (SIDE / 2 - LEFT + i * 8) * (SIDE + 4) + FEATURE(GROUP) + 32 * half);
      }
      __syncthreads();
    }
    keys_here = chunks > 1 ? -1 : j0, queries_here = chunks > 1 ? -1 : i0, was = i0, adds = j0 > 0, i0 += SIDE;
    if (i0 < past_queries) continue;
    if (OF_KEYS) UNROLL for (int half = 0; half < 2; ++half) {
      float* const to = later ? (float*)a.out[1] + KEYS_AT * a.width : (float*)a.out[2] + KEYS_AT * a.value_width;
      const int columns = (int)(later ? a.width : a.value_width);
      store(sums + 4 * half, to, j0, first * SIDE + 32 * half, (int)a.keys, STEP(columns), columns, false, fours);
      UNROLL for (int i = 0; i < 4; ++i) UNROLL for (int j = 0; j < 4; ++j) sums[4 * half + i][j] = 0;
    }
    if (!OF_QUERIES) return;
    j0 += SIDE, i0 = CAUSAL && j0 > i_first ? j0 : i_first;
  }
}
inline int end_of(int begin, i64 past) { return begin + SIDE < past ? begin + SIDE : (int)past; }

/// Σ dy·y of every query, which all its scores share, in the order of add_own.
KERNEL void own(const Args a) {
  const i64 lines = a.heads * a.queries;
  for (i64 line = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32 * 2 + threadIdx.x / 16 % 2; line / 2 * 2 < lines; line += (i64)gridDim.x * blockDim.x / 16) {
    const i64 at = line < lines ? (ROW_OF(line / a.queries, a.queries, BESIDE) + line % a.queries * BESIDE) * a.value_width : 0;
    float sum = 0;
    for (i64 k = threadIdx.x % 16 * 4; k < a.value_width; k += SIDE) {
      Four dy, y;
      UNROLL for (int e = 0; e < 4; ++e) {
        const bool there = line < lines && k + e < a.value_width;
        dy.e[e] = there ? ((const float*)a.in[5])[at + k + e] : 0.f, y.e[e] = there ? ((const float*)a.in[3])[at + k + e] : 0.f;
      }
      sum += dot(dy, y);
    }
    sum = across_sixteen(sum);
    if (threadIdx.x % 16 == 0 && line < lines) ((float*)a.scratch)[line] = sum;
  }
}
)";
/// A block walks over all pairs of a head, so that each is computed once.
const char* const kWhole = R"(
KERNEL void whole(const Args a) {
  const u32 chunks = tiles(a.width > a.value_width ? a.width : a.value_width);
  for (u32 item = blockIdx.x; item < (u32)a.heads * chunks; item += gridDim.x) {
    begin_head(item / chunks, a);
    walk<true, true>((int)(item % chunks), 0, a.keys > 0 ? (int)a.keys : 1, 0, (int)a.queries, a);
  }
}
)";
/// Where heads are few and long: each pair is computed for its keys, and for its queries.
const char* const kApart = R"(
KERNEL void of_keys(const Args a) {
  const u32 columns = tiles(a.keys), chunks = tiles(a.width > a.value_width ? a.width : a.value_width);
  for (u32 item = blockIdx.x; item < (u32)a.heads * columns * chunks; item += gridDim.x) {
    const int j0 = (int)(item / chunks % columns) * SIDE;
    begin_head(item / chunks / columns, a);
    walk<true, false>((int)(item % chunks), j0, end_of(j0, a.keys), 0, (int)a.queries, a);
  }
}
KERNEL void of_queries(const Args a) {
  const u32 rows = tiles(a.queries), chunks = tiles(a.width);
  for (u32 item = blockIdx.x; item < (u32)a.heads * rows * chunks; item += gridDim.x) {
    const int i0 = (int)(item / chunks % rows) * SIDE;
    begin_head(item / chunks / rows, a);
    walk<false, true>((int)(item % chunks), 0, CAUSAL ? end_of(i0, a.keys) : a.keys > 0 ? (int)a.keys : 1, i0, end_of(i0, a.queries), a);
  }
}
)";

constexpr std::int64_t kSide = 64, kManyHeads = 256, kFewPairs = 4;
constexpr int kShared = 4 * (5 * 64 * 68 + 32 * 68 + 2 * 64);  // bytes of Tiles

std::unique_ptr<Prepared> gradient(const KernelRequest& r, const AttentionLayout& p, GpuCode& code) {
  Generated g = tf32_attention::begun(r, p, kShared);
  const std::int64_t chunks = up(std::max(p.width, p.value_width), kSide), rows = up(p.queries, kSide), columns = up(p.keys, kSide), pairs = rows * columns - (p.causal ? columns * (columns - 1) / 2 : 0);
  auto grid = [](std::int64_t items) { return Grid{std::min<std::int64_t>(items, 16384), 256, kShared}; };
  const Grid lines = grid_for(p.heads * p.queries * 16);
  g.body(kTiles);
  if (p.heads * chunks >= kManyHeads || pairs <= kFewPairs) {
    if (chunks == 1 && p.width % 4 == 0 && p.value_width % 4 == 0) g.launch("own", {.blocks = 0}, {0, 1, 2, 3, 5, r.inputs.size(), r.inputs.size() + 1, r.inputs.size() + 2}, "own", lines);
    else g.launch("own", lines);
    return g.entries(kWhole).launch("whole", grid(p.heads * chunks)).prepare(code);
  }
  return g.entries(kApart).launch("own", lines).launch("of_keys", grid(p.heads * columns * chunks)).launch("of_queries", grid(p.heads * rows * up(p.width, kSide))).prepare(code);
}

Support supports(const KernelRequest& r) {
  Support s = tf32_attention::supports(r, 6);
  if (!s.ok) return s;
  if (r.wanted[3]) return refuse("somebody reads the gradients of the scores, which it keeps to itself");
  s.scratch_bytes = r.inputs[4].elements() * 4;
  return s;
}

}  // namespace

std::vector<Kernel> attention_gradient_tf32_cuda(const GpuCodeRef& code) {
  return {{.name = "nvrtc_attention_tf32", .op = "scaled_dot_product_attention_gradient", .supports = supports,
           .prepare = [=](const KernelRequest& r) { return gradient(r, tf32_attention::layout_of(r), *code); }, .leeway = {.tf32 = true}}};
}

}  // namespace belfry
