// Attention in f32 that may be rounded to TF32, on tensor cores.
#include <belfry/ops/cuda_kernels.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numbers>
#include <string>

#include <belfry/ops/scaled_dot_product_attention/attention_tf32_cuda_internal.h>

namespace belfry {
namespace {

/// A warp has 16 queries, in registers, and walks over the keys, 64 of which lie in shared memory for all warps of the block while the next are on their way. It takes 32 keys at a time.
/// What one product leaves in a lane's registers the next takes as it lies: keys, which are only summed over, are dealt to lanes as they come.
const char* const kForward = R"(
/// Of each row its fours of columns are turned, so that lanes of a warp that read them read a bank each.
#define TURNED(row) (((row) >> 1 & 3) + ((row) & 1) * 4)
struct alignas(16) Tiles { float keys[SIDE][32 * WIDTHS], values[SIDE][32 * VALUE_WIDTHS]; };
static_assert(2 * sizeof(Tiles) == SHARED, "bytes that a launch asks for");
#ifdef __CUDACC_RTC__
extern __shared__ Tiles all_tiles[];
#else
__shared__ Tiles all_tiles[2];
#endif
#define FEW 32
// Of thread t: its place in a row of the warp's, the row, and where the warp's 16 rows begin.
#define LANE ((int)(t % 4))
#define GROUP ((int)(t % 32 / 4))
#define TOP ((int)(t / 32 * 16))
/// What no register keeps: where the block's head begins, in rows of features of queries and keys and in what there is one of per query, the first query, how many keys the queries see, and where the head begins in y.
__shared__ int places[6];
#define QUERIES_AT places[0]
#define KEYS_AT places[1]
#define LINES_AT places[2]
#define FIRST places[3]
#define SEEN places[4]
#define Y_AT places[5]

/// SIDE rows, zeros where there are none.
template <bool FOURS, int COLUMNS> inline void stage(float (&to)[SIDE][COLUMNS], const float* from, int rows, int step, int columns) {
  if (FOURS) {
    const u32 t = thread_now();
    const int four = t % (COLUMNS / 4), first = t / (COLUMNS / 4);
    UNROLL for (int n = 0; n < SIDE; n += 4 * THREADS / COLUMNS) copy_four(&to[first + n][(four ^ TURNED(first)) * 4], from + (first + n) * step + four * 4, first + n < rows && four * 4 < columns);
  } else {
    const u32 t = thread_now();
    const int column = t % COLUMNS;
#pragma unroll 1
    for (int row = t / COLUMNS; row < SIDE; row += THREADS / COLUMNS)
      to[row][(column / 4 ^ TURNED(row)) * 4 + column % 4] = row < rows && column < columns ? to_tf32(from[row * step + column]) : 0.f;
  }
}
/// What this thread has copied.
template <int COLUMNS> inline void round_copies(float (&rows)[SIDE][COLUMNS]) {
  const u32 t = thread_now();
  const int four = t % (COLUMNS / 4), first = t / (COLUMNS / 4);
  UNROLL for (int n = 0; n < SIDE; n += 4 * THREADS / COLUMNS) {
    Four* const at = (Four*)&rows[first + n][(four ^ TURNED(first)) * 4];
    Four x = *at;
    UNROLL for (int e = 0; e < 4; ++e) x.e[e] = to_tf32(x.e[e]);
    *at = x;
  }
}
/// From the next lane, and from the one behind that: four have what is of a row.
inline float from_lane(float x, int apart) { return __shfl_xor_sync(0xFFFFFFFFu, x, apart); }

/// The warp's 16 queries: lane l has rows l / 4 and l / 4 + 8, of each 16 features four that lie side by side.
template <bool FOURS> inline void read_queries(float (&q)[2 * WIDTHS][2][4], const float* from, int rows, int step, int columns) {
  const u32 t = thread_now();
  UNROLL for (int i = 0; i < 2; ++i) {
    const int row = TOP + GROUP + 8 * i;
    UNROLL for (int m = 0; m < 2 * WIDTHS; ++m) {
      const int column = 16 * m + 4 * LANE;
      Four x = {};
      if (FOURS) {
        if (row < rows && column < columns) x = *(const Four*)(from + row * step + column);
      } else {
        UNROLL for (int e = 0; e < 4; ++e) if (row < rows && column + e < columns) x.e[e] = from[row * step + column + e];
      }
      UNROLL for (int e = 0; e < 4; ++e) q[m][i][e] = to_tf32(x.e[e]);
    }
  }
}
/// Scores of FEW keys: of each eight lane l has those of keys 2(l % 4) and one more, of the first row, then of the second.
inline void score(float (&s)[4][4], const float (&q)[2 * WIDTHS][2][4], const float (*keys)[32 * WIDTHS]) {
  const u32 t = thread_now();
  UNROLL for (int m = 0; m < 2 * WIDTHS; ++m) {
    Four k[4];
    UNROLL for (int i = 0; i < 4; ++i) k[i] = *(const Four*)&keys[i * 8 + GROUP][((4 * m + LANE) ^ TURNED(GROUP)) * 4];
    UNROLL for (int e = 0; e < 4; e += 2) UNROLL for (int i = 0; i < 4; ++i) {
      const float a[4] = {q[m][0][e], q[m][1][e], q[m][0][e + 1], q[m][1][e + 1]}, b[2] = {k[i].e[e], k[i].e[e + 1]};
      multiply_in_warp(s[i], a, b);
    }
  }
}
/// y += weights·values.
inline void add_weighted(float (&y)[VALUE_WIDTHS][4][4], const float (&weights)[4][4], const float (*values)[32 * VALUE_WIDTHS]) {
  const u32 t = thread_now();
  UNROLL for (int i = 0; i < 4; ++i) {
    const float a[4] = {weights[i][0], weights[i][2], weights[i][1], weights[i][3]};
    UNROLL for (int h = 0; h < VALUE_WIDTHS; ++h) {
      const int row = i * 8 + LANE * 2, four = 8 * h + TURNED(GROUP);
      const Four even = *(const Four*)&values[row][(four ^ LANE) * 4], odd = *(const Four*)&values[row + 1][(four ^ LANE ^ 4) * 4];
      UNROLL for (int j = 0; j < 4; ++j) {
        const float b[2] = {even.e[j], odd.e[j]};
        multiply_in_warp(y[h][j], a, b);
      }
    }
  }
}
template <bool FOURS> inline void begin(int j0, const Args& a) {
  Tiles& to = all_tiles[j0 / SIDE % 2];
  stage<FOURS>(to.keys, (const float*)a.in[1] + KEYS_AT * (int)a.width + j0 * (int)a.step, (int)a.keys - j0, (int)a.step, (int)a.width);
  stage<FOURS>(to.values, (const float*)a.in[2] + KEYS_AT * (int)a.value_width + j0 * (int)a.value_step, (int)a.keys - j0, (int)a.value_step, (int)a.value_width);
}
/// A block has as many queries of a head as half its threads.
template <bool FOURS> inline void attend(const Args& a) {
  if (threadIdx.x == 0) {
    const u32 blocks = ((u32)a.queries + THREADS / 2 - 1) / (THREADS / 2), head = blockIdx.x / blocks, beside = (u32)BESIDE, of_heads = head / beside * (u32)APART, within = head % beside;
    places[0] = of_heads * (u32)a.queries + within, places[1] = of_heads * (u32)a.keys + within, places[2] = head * (u32)a.queries, places[5] = (head - within) * (u32)a.queries + within;
    const int first = blockIdx.x % blocks * (THREADS / 2), keys = (int)a.keys;
    places[3] = first, places[4] = CAUSAL && first + THREADS / 2 < keys ? first + THREADS / 2 : keys;
  }
  __syncthreads();
  begin<FOURS>(0, a);
  float q[2 * WIDTHS][2][4], y[VALUE_WIDTHS][4][4] = {}, top[2] = {NOTHING, NOTHING}, total[2] = {};
  read_queries<FOURS>(q, (const float*)a.in[0] + QUERIES_AT * (int)a.width + FIRST * (int)a.step, (int)a.queries - FIRST, (int)a.step, (int)a.width);
  for (int key = 0; key < SEEN; key += FEW) {
    Tiles& tiles = all_tiles[key / SIDE % 2];
    if (key % SIDE == 0) {
      await_copies();
      if (FOURS) round_copies(tiles.keys), round_copies(tiles.values);
      __syncthreads();
      if (key + SIDE < SEEN) begin<FOURS>(key + SIDE, a);
    }
    const u32 t = thread_now();
    const int row = FIRST + TOP;
    if (row >= (int)a.queries || (CAUSAL && key >= row + 16)) continue;
    float s[4][4] = {};
    score(s, q, tiles.keys + key % SIDE);
    if (key + FEW > (int)a.keys || (CAUSAL && key + FEW > row + 1)) {
      UNROLL for (int i = 0; i < 4; ++i) UNROLL for (int e = 0; e < 4; ++e) {
        const int of = key + i * 8 + LANE * 2 + e % 2;
        if (of >= (int)a.keys || (CAUSAL && of > row + GROUP + e / 2 * 8)) s[i][e] = NOTHING;
      }
    }
    const float power = __uint_as_float((u32)a.power);
    UNROLL for (int r = 0; r < 2; ++r) {
      float best = top[r];
      UNROLL for (int i = 0; i < 4; ++i) best = fmaxf(best, fmaxf(s[i][2 * r], s[i][2 * r + 1]));
      best = fmaxf(best, from_lane(best, 1)), best = fmaxf(best, from_lane(best, 2));
      const float base = best == NOTHING ? 0.f : best * power, kept = power_of_two(fma(top[r], power, -base));
      top[r] = best, total[r] *= kept;
      UNROLL for (int i = 0; i < 4; ++i) UNROLL for (int e = 2 * r; e < 2 * r + 2; ++e) {
        const float weight = power_of_two(fma(s[i][e], power, -base));
        total[r] += weight, s[i][e] = to_tf32(weight);
      }
      UNROLL for (int h = 0; h < VALUE_WIDTHS; ++h) UNROLL for (int i = 0; i < 4; ++i) UNROLL for (int e = 2 * r; e < 2 * r + 2; ++e) y[h][i][e] *= kept;
    }
    add_weighted(y, s, tiles.values + key % SIDE);
  }
  const u32 t = thread_now();
  UNROLL for (int r = 0; r < 2; ++r) {
    const int row = FIRST + TOP + GROUP + 8 * r;
    const float half = total[r] + from_lane(total[r], 1), sum = half + from_lane(half, 2), of_one = 1 / sum;
    if (row >= (int)a.queries) continue;
    float* const to = (float*)a.out[0] + Y_AT * (int)a.value_width + row * (int)(BESIDE * a.value_width);
    UNROLL for (int h = 0; h < VALUE_WIDTHS; ++h) UNROLL for (int e = 0; e < 2; ++e) {
      const int column = 32 * h + 16 * e + 4 * LANE;
      Four x;
      UNROLL for (int j = 0; j < 4; ++j) x.e[j] = sum == 0 ? 0.f : y[h][j][2 * r + e] * of_one;
      if (FOURS) {
        if (column < (int)a.value_width) *(Four*)(to + column) = x;
      } else {
        UNROLL for (int j = 0; j < 4; ++j) if (column + j < (int)a.value_width) to[column + j] = x.e[j];
      }
    }
    if (a.out[1] && LANE == 0) ((float*)a.out[1])[LINES_AT + row] = (top[r] == NOTHING ? 0.f : top[r] * (float)a.scale) + log(sum);
  }
}
KERNEL void in_fours(const Args a) { attend<true>(a); }
KERNEL void one_by_one(const Args a) { attend<false>(a); }
)";

constexpr std::int64_t kWidest = 64;  // a lane has a quarter of two rows of q, and of y

std::unique_ptr<Prepared> forward(const KernelRequest& r, GpuCode& code) {
  const AttentionLayout p = tf32_attention::layout_of(r);
  const std::int64_t widths = p.width > 32 ? 2 : 1, value_widths = p.value_width > 32 ? 2 : 1;
  const int threads = p.queries > 64 ? 256 : 128, shared = static_cast<int>(2 * 64 * 32 * 4 * (widths + value_widths));
  Generated g = tf32_attention::begun(r, p, shared);
  g.head("#define WIDTHS " + std::to_string(widths)).head("#define VALUE_WIDTHS " + std::to_string(value_widths)).head("#define THREADS " + std::to_string(threads));
  g.number("step", p.step(p.width)).number("value_step", p.step(p.value_width));
  g.number("power", std::bit_cast<std::uint32_t>(std::max(static_cast<float>(p.scale * std::numbers::log2e), 1e-37f)));  // of two, by a score; no less, since −∞ times it is −∞
  const Grid grid{p.heads * up(p.queries, threads / 2), threads, shared};
  g.body(kForward);
  if (p.width % 4 == 0 && p.value_width % 4 == 0) g.launch("in_fours", grid, {0, 1, 2, r.inputs.size()}, "one_by_one", grid);
  else g.launch("one_by_one", grid);
  return g.prepare(code);
}

Support supports(const KernelRequest& r) {
  Support s = tf32_attention::supports(r, 3);
  if (!s.ok) return s;
  const std::int64_t widest = std::max(r.inputs[0].shape.back(), r.inputs[2].shape.back());
  if (widest > kWidest) return refuse(std::to_string(widest) + " features are more than the " + std::to_string(kWidest) + " that its registers hold");
  return s;
}

}  // namespace

std::vector<Kernel> attention_tf32_cuda(const GpuCodeRef& code) {
  return {{.name = "nvrtc_attention_tf32", .op = "scaled_dot_product_attention", .supports = supports, .prepare = [=](const KernelRequest& r) { return forward(r, *code); }, .leeway = {.tf32 = true}}};
}

}  // namespace belfry
