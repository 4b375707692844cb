// The gradient of filters of pictures with few channels, on tensor cores.
#include <belfry/ops/conv2d/few_channels_cuda_internal.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/ops/conv2d/join_parts_internal.h>

namespace belfry {

namespace {

/// A block sums over the pixels of its tiles, of which dy comes to shared memory in chunks, the next while one is multiplied. A warp has 16 rows of the result, eight words of a window, in each of
/// KT products, and 32 filters; those with the same take turns at pixels. Of halves the two of a word are rows eight apart, so that pairs of pixels are made of two reads of whole words.
const char* const kGradient = R"(
#define STEP (8 * PER)
#define NT 4
#define TURNS (8 / (KGROUPS * GROUPS))
struct alignas(16) Words { u32 of[ALL_WORDS]; };
#ifdef __CUDACC_RTC__
extern __shared__ Words all_words[];
/// Four matrices of 8 rows of 8 halves: lane l says where row l % 8 of matrix l / 8 lies, and gets of each matrix rows 2(l % 4) and one more of column l / 4.
inline void load_transposed(u32 (&to)[4], const u32* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}
inline u32 lower(u32 a, u32 b) { return __byte_perm(a, b, 0x5410); }
inline u32 upper(u32 a, u32 b) { return __byte_perm(a, b, 0x7632); }
#else
__shared__ Words all_words[1];
inline u32 lower(u32 a, u32 b) { return (a & 0xFFFFu) | b << 16; }
inline u32 upper(u32 a, u32 b) { return a >> 16 | (b & 0xFFFF0000u); }
#endif
/// Of CHUNK pixels, zeros where there are none.
template <bool WIDE> inline void stage_dy(u32* to, const Place& at, int from, int rows, const Args& a) {
  const int runs = GROUPS * 8 / PER;
#pragma unroll 2
  for (int k = threadIdx.x; k < CHUNK * runs; k += 256) {
    const int pixel = from + k / runs, n = k % runs * 4 * PER, row = pixel / TW, column = at.q + pixel % TW;
    const bool there = row < rows && column < YW && n < FILTERS;
    const E* const dy = (const E*)a.in[1] + (there ? ((i64)(at.picture * YH + at.p + row) * YW + column) * FILTERS + n : 0);
    u32* const run = to + k / runs * DY_PITCH + k % runs * 4;
    if (WIDE) copy_bytes<16>(run, dy, there);
    else UNROLL for (int w = 0; w < 4; ++w) {
      run[w] = 0;
      UNROLL for (int e = 0; e < PER; ++e) if (there) run[w] |= placed(dy[w * PER + e], e);
    }
  }
}
/// sums += windows of the chunk's pixels, each with its slopes. Behind the last pixel the first is read beside zeros of dy: what it makes no number is none anyway.
inline void add_chunk(float (&sums)[KT][NT][4], const int (&words)[KT][3 - PER], const u32* x, const u32* dy, int turn, int n0, int from, int pixels, int columns) {
  for (int step = turn; step < CHUNK / STEP && from + step * STEP < pixels; step += TURNS) {
    u32 b[NT][2];
    if (PER == 2) {
      UNROLL for (int j = 0; j < NT; j += 2) {
        u32 four[4];
        load_transposed(four, dy + (step * STEP + threadIdx.x % 16) * DY_PITCH + (n0 + 8 * j) / 2 + threadIdx.x % 32 / 16 * 4);
        b[j][0] = four[0], b[j][1] = four[1], b[j + 1][0] = four[2], b[j + 1][1] = four[3];
      }
    } else {
      UNROLL for (int j = 0; j < NT; ++j)
        UNROLL for (int h = 0; h < 2; ++h) b[j][h] = placed(__uint_as_float(dy[(step * STEP + 4 * h + LANE) * DY_PITCH + n0 + 8 * j + GROUP]), 0);
    }
    const u32* windows[2 * PER];
    UNROLL for (int k = 0; k < 2 * PER; ++k) {
      int pixel = from + step * STEP + (PER == 2 ? k / 2 * 8 + LANE * 2 + k % 2 : 4 * k + LANE);
      if (pixel >= pixels || pixel % TW >= columns) pixel = 0;
      windows[k] = x + window_of(pixel);
    }
    UNROLL for (int i = 0; i < KT; ++i) {
      u32 w[4];
      if (PER == 2) {
        u32 read[4];
        UNROLL for (int k = 0; k < 4; ++k) read[k] = windows[k % (2 * PER)][words[i][0]];
        w[0] = lower(read[0], read[1]), w[1] = upper(read[0], read[1]), w[2] = lower(read[2], read[3]), w[3] = upper(read[2], read[3]);
      } else {
        UNROLL for (int k = 0; k < 4; ++k) w[k] = windows[k / 2][words[i][k % 2 * (2 - PER)]];
      }
      UNROLL for (int j = 0; j < NT; ++j) multiply_words(sums[i][j], w, b[j]);
    }
  }
}
template <bool WIDE> inline void parts(const Args& a) {
  u32* const x = all_words[0].of;
  u32* const dy = x + DY_AT;
  const int task = WARP % (KGROUPS * GROUPS), turn = WARP / (KGROUPS * GROUPS), n0 = task % GROUPS * 32, first = task / GROUPS * KT;
  int words[KT][3 - PER];
  UNROLL for (int i = 0; i < KT; ++i)
    UNROLL for (int h = 0; h < 3 - PER; ++h) {
      const int p = ((first + i) * (3 - PER) + h) * 8 + GROUP;
      words[i][h] = p < ALL ? p / WORDS * PITCH + p % WORDS : 0;
    }
  float sums[KT][NT][4] = {};
  const i64 first_tile = blockIdx.x * a.part, past = first_tile + a.part < a.tiles ? first_tile + a.part : a.tiles;
  for (i64 tile = first_tile; tile < past; ++tile) {
    const Place at = place_of((u32)tile);
    const int rows = YH - at.p < TH ? YH - at.p : TH, pixels = rows * TW, columns = YW - at.q;
    __syncthreads();
    stage_x(x, at, a);
    stage_dy<WIDE>(dy, at, 0, rows, a);
    commit_copies();
    for (int from = 0, which = 0; from < pixels; from += CHUNK, which ^= 1) {
      if (from + CHUNK < pixels) stage_dy<WIDE>(dy + (which ^ 1) * CHUNK * DY_PITCH, at, from + CHUNK, rows, a);
      commit_copies();
      await_copies_but<1>();
      if (from == 0) finish_x(x);
      else __syncthreads();
      if (turn < TURNS) add_chunk(sums, words, x, dy + which * CHUNK * DY_PITCH, turn, n0, from, pixels, columns);
      __syncthreads();
    }
  }
  float* const others = (float*)x + task * (KT * NT * 4 * 32) + threadIdx.x % 32;
  for (int other = 1; other < TURNS; ++other) {
    if (turn == other) UNROLL for (int k = 0; k < KT * NT * 4; ++k) others[k * 32] = sums[k / (NT * 4)][k / 4 % NT][k % 4];
    __syncthreads();
    if (turn == 0) UNROLL for (int k = 0; k < KT * NT * 4; ++k) sums[k / (NT * 4)][k / 4 % NT][k % 4] += others[k * 32];
    __syncthreads();
  }
  if (turn > 0) return;
  UNROLL for (int i = 0; i < KT; ++i)
    UNROLL for (int h = 0; h < 2; ++h) {
      const int p = PER == 2 ? (first + i) * 8 + GROUP : (first + i) * 16 + h * 8 + GROUP, e = p % WORDS * PER + (PER == 2 ? h : 0);
      if (p >= ALL || e >= RUN) continue;
      float* const to = (float*)a.scratch + blockIdx.x * a.elements + (p / WORDS * RUN + e) * FILTERS;
      UNROLL for (int j = 0; j < NT; ++j)
        if (const int n = n0 + 8 * j + LANE * 2; n < FILTERS) *(Pack<float, 2>*)(to + n) = {{sums[i][j][2 * h], sums[i][j][2 * h + 1]}};
    }
}
KERNEL_AHEAD void wide(const Args a) { parts<true>(a); }
KERNEL_AHEAD void narrow(const Args a) { parts<false>(a); }
)";

constexpr std::int64_t kMostProducts = 5, kWarps = 8, kMostParts = 256, kChunkBytes = 20 * 1024, kMostShared = 99 * 1024;

/// How the sums are shared out, by shape and dtype alone.
struct Cut {
  explicit Cut(const KernelRequest& r) : f(*r.attributes, r.inputs[0], r.outputs[0], r.inputs[1]) {
    const std::int64_t products = up(f.all, 16 / f.per);
    kgroups = up(products, kMostProducts), kt = up(products, kgroups), groups = up(f.filters, 32);
    dy_pitch = groups * 32 / f.per + (f.per == 2 ? 4 : 8);  // rows of eight banks each
    while (chunk > 32 && chunk * dy_pitch * 4 > kChunkBytes) chunk /= 2;
    dy_at = up(f.shared_words, 4) * 4;
    words = std::max(dy_at + 2 * chunk * dy_pitch, kgroups * groups < kWarps ? kgroups * groups * kt * 4 * 4 * 32 : 0);
    if (!f.refusal.empty()) return;
    part = up(f.tiles, kMostParts), parts = up(f.tiles, part);
  }
  FewChannels f;
  std::int64_t kgroups = 0, kt = 0, groups = 0, chunk = 256, dy_pitch = 0, dy_at = 0, words = 0, part = 0, parts = 0;
};

}  // namespace

std::string objection_to_few_channels_gradient(const KernelRequest& r) {
  const Cut c(r);
  if (c.kgroups * c.groups > kWarps) return "its filters are more than a block's warps have room for";
  return 4 * c.words > kMostShared ? "its windows reach too far" : "";
}

std::int64_t few_channels_filter_gradient_scratch(const KernelRequest& r) { return Cut(r).parts * r.outputs[0].elements() * 4; }

Generated few_channels_filter_gradient(const KernelRequest& r) {
  const Cut c(r);
  Generated g(r);
  g.type("Y", r.outputs[0].dtype).type("F", f32).type("I", "i64");
  for (auto [name, value] : {std::pair{"KT", c.kt}, {"KGROUPS", c.kgroups}, {"GROUPS", c.groups}, {"CHUNK", c.chunk}, {"DY_PITCH", c.dy_pitch}, {"DY_AT", c.dy_at}, {"ALL_WORDS", c.words}}) g.head(fmt::format("#define {} {}", name, value));
  c.f.describe(g, *r.attributes, r.inputs[0], r.outputs[0], r.inputs[1]);
  g.number("parts", c.parts).number("part", c.part).number("tiles", c.f.tiles).number("elements", r.outputs[0].elements()).body(kGradient).body(kJoinParts);
  const Grid grid{c.parts, 256, static_cast<int>(4 * c.words)};
  return g.launch("wide", grid, {1}, "narrow", grid).launch("join", {up(r.outputs[0].elements(), 32), 256});
}

}  // namespace belfry
