#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <belfry/ops/conv2d/depthwise_cuda_internal.h>
#include <belfry/ops/conv2d/join_parts_internal.h>

namespace belfry {

namespace {

const char* const kShared = R"(
inline F value(T x) { return convert<F>(x); }
inline bool inside(I at, I size) { return at >= 0 && at < size; }
inline I nearest(I at, I size) { return at < 0 ? 0 : at < size ? at : size - 1; }
)";

/// From each window that holds a pixel. A run of pixels begins at a multiple of the stride: which taps hold which of them is known here, PHASE being where the padding puts the first.
const char* const kGiveBack = R"(
enum { BEHIND = (WINDOW_W - 1) * DILATION_W > PHASE ? ((WINDOW_W - 1) * DILATION_W - PHASE) / STRIDE_W : 0, BEYOND = (PHASE + RUN - 1) / STRIDE_W };
template <int N> void give_back(const Args& a) {
  const I packs = (I)a.channels / N, toh = (I)a.toh, tow = (I)a.tow, fromh = (I)a.fromh, fromw = (I)a.fromw, runs = (tow + RUN - 1) / RUN;
  for (I u = (I)blockIdx.x * blockDim.x + threadIdx.x; u < (I)a.pictures * toh * runs * packs; u += (I)gridDim.x * blockDim.x) {
    const I c = u % packs, column = u / packs % runs * RUN, row = u / packs / runs % toh, picture = u / packs / runs / toh, first = column / STRIDE_W + (I)a.before_w / STRIDE_W;
    const Pack<T, N>* from = (const Pack<T, N>*)a.in[0] + c;
    const Pack<T, N>* filter = (const Pack<T, N>*)a.in[1] + c;
    F sum[RUN][N] = {};
#pragma unroll
    for (int i = 0; i < WINDOW_H; ++i) {
      const I high = row + (I)a.before_h - i * DILATION_H, p = high / STRIDE_H, line = (picture * fromh + p) * fromw;
      if (high < 0 || high % STRIDE_H || p >= fromh) continue;
      Pack<T, N> v[BEHIND + BEYOND + 1];
#pragma unroll
      for (int o = 0; o < BEHIND + BEYOND + 1; ++o) v[o] = from[(line + nearest(first - BEHIND + o, fromw)) * packs];
#pragma unroll
      for (int j = 0; j < WINDOW_W; ++j) {
        const Pack<T, N> w = filter[(i * WINDOW_W + j) * packs];
#pragma unroll
        for (int r = 0; r < RUN; ++r) {
          const int apart = PHASE + r - j * DILATION_W;
          if (apart % STRIDE_W != 0 || !inside(first + apart / STRIDE_W, fromw)) continue;
#pragma unroll
          for (int k = 0; k < N; ++k) sum[r][k] = fma(value(v[BEHIND + apart / STRIDE_W].e[k]), convert<F>(w.e[k]), sum[r][k]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < RUN; ++r) {
      if (column + r >= tow) break;
      Pack<T, N> out;
#pragma unroll
      for (int k = 0; k < N; ++k) out.e[k] = convert<T>(sum[r][k]);
      ((Pack<T, N>*)a.out[0])[((picture * toh + row) * tow + column + r) * packs + c] = out;
    }
  }
}
KERNEL void wide(const Args a) { give_back<16 / sizeof(T)>(a); }
KERNEL void narrow(const Args a) { give_back<1>(a); }
)";

/// A part has 256 / lanes threads for each of so many packs of channels, and each of them as many runs of neighbouring windows, one behind the other, and ROWS rows of the window. What they have is added in their order, and the parts after that.
/// What lies outside is read where the picture ends, and not added: so nothing that is read waits for anything.
const char* const kFilter = R"(
enum { SETS = (WINDOW_H + ROWS - 1) / ROWS };
/// What a row of pixels adds to the row of the filter that `left` windows of a run lay on it: WHOLE if that is all of them, and all pixels from `column` on are the picture's.
template <bool WHOLE, int N> void add_row(const Pack<T, N> (&x)[SPAN], const F (&dy)[RUN][N], F (&sum)[WINDOW_W][N], I left, I column, I width) {
#pragma unroll
  for (int t = 0; t < SPAN; ++t) {
    if (!WHOLE && !inside(column + t, width)) continue;
    F v[N];
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = value(x[t].e[k]);
#pragma unroll
    for (int r = 0; r < RUN; ++r) {
#pragma unroll
      for (int j = 0; j < WINDOW_W; ++j) {
        if (t != r * STRIDE_W + j * DILATION_W || (!WHOLE && r >= left)) continue;
#pragma unroll
        for (int k = 0; k < N; ++k) sum[j][k] = fma(v[k], dy[r][k], sum[j][k]);
      }
    }
  }
}
template <int N> void parts(const Args& a) {
  __shared__ F shared[N][256];
  const I packs = (I)a.channels / N, yh = (I)a.yh, yw = (I)a.yw, xh = (I)a.xh, xw = (I)a.xw, runs = (yw + RUN - 1) / RUN, groups = (packs + (I)a.lanes - 1) / (I)a.lanes;
  const int lanes = (int)a.lanes, abreast = 256 / lanes, lane = threadIdx.x % lanes, turn = threadIdx.x / lanes;
  for (I b = blockIdx.x; b < (I)a.parts * groups * SETS; b += gridDim.x) {
    const I first = b % SETS * ROWS, part = b / SETS / groups, c = b / SETS % groups * lanes + lane, begin = part * (I)a.part + turn * ((I)a.part / abreast);
    F sum[ROWS][WINDOW_W][N] = {};
    I q = begin % runs * RUN, p = begin / runs % yh, picture = begin / runs / yh;
    for (I left = turn < abreast && c < packs ? (I)a.part / abreast : 0; left > 0 && picture < (I)a.pictures; --left) {
      const I column = q * STRIDE_W - (I)a.before_w;
      const bool whole = q + RUN <= yw && column >= 0 && column + SPAN <= xw;
      const Pack<T, N>* given = (const Pack<T, N>*)a.in[1] + (picture * yh + p) * yw * packs + c;
      F dy[RUN][N];
#pragma unroll
      for (int r = 0; r < RUN; ++r) {
        const Pack<T, N> d = given[nearest(q + r, yw) * packs];
#pragma unroll
        for (int k = 0; k < N; ++k) dy[r][k] = value(d.e[k]);
      }
      Pack<T, N> read[ROWS][SPAN];
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const Pack<T, N>* x = (const Pack<T, N>*)a.in[0] + (picture * xh + nearest(p * STRIDE_H - (I)a.before_h + (first + i) * DILATION_H, xh)) * xw * packs + c;
#pragma unroll
        for (int t = 0; t < SPAN; ++t) read[i][t] = x[nearest(column + t, xw) * packs];
      }
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        if (first + i >= WINDOW_H || !inside(p * STRIDE_H - (I)a.before_h + (first + i) * DILATION_H, xh)) continue;
        if (whole) add_row<true>(read[i], dy, sum[i], RUN, column, xw);
        else add_row<false>(read[i], dy, sum[i], yw - q, column, xw);
      }
      q += RUN;
      if (q >= yw) q = 0, ++p;
      if (p >= yh) p = 0, ++picture;
    }
#pragma unroll
    for (int tap = 0; tap < ROWS * WINDOW_W; ++tap) {
      __syncthreads();
#pragma unroll
      for (int k = 0; k < N; ++k) shared[k][threadIdx.x] = sum[tap / WINDOW_W][tap % WINDOW_W][k];
      __syncthreads();
      if (turn >= N || c >= packs || first + tap / WINDOW_W >= WINDOW_H) continue;  // there are more turns than elements of a pack
      F total = shared[turn][lane];
      for (int other = 1; other < abreast; ++other) total += shared[turn][other * lanes + lane];
      ((F*)a.scratch)[(((i64)part * WINDOW_H * WINDOW_W + first * WINDOW_W + tap) * packs + c) * N + turn] = total;
    }
  }
}
KERNEL_AHEAD void wide(const Args a) { parts<WIDTH_OF_PARTS>(a); }
KERNEL_AHEAD void narrow(const Args a) { parts<1>(a); }
)";

/// How the windows are cut into parts, by the shape alone. A pack is of 8 bytes, of f16, which take more registers on their way to f32, of 4; of wide windows it is an element. All that a thread reads
/// at once, and its sums, have about 40 registers each.
struct Parts {
  Parts(const Depthwise& d, DType t) : width(d.s.window_w <= 5 && d.channels % pack(t) == 0 ? pack(t) : 1) {
    const std::int64_t packs = d.channels / width;
    groups = up(packs, 48);
    lanes = up(packs, groups);
    run = std::min<std::int64_t>(d.s.stride_w == 1 && d.s.window_w <= 3 ? 4 : 2, d.y[2]);
    span = (run - 1) * d.s.stride_w + spread(d.s.window_w, d.s.dilation_w);
    rows = std::clamp<std::int64_t>(40 / std::max(d.s.window_w * width * (t == f64 ? 2 : 1), 2 * std::min(span, run * d.s.window_w)), 1, d.s.window_h);
    // Two runs a thread at least, and no more blocks than keep a GPU busy: what each leaves is read again.
    const std::int64_t runs = d.y[0] * d.y[1] * up(d.y[2], run), turns = 256 / lanes;
    part = turns * std::max<std::int64_t>(up(runs * groups, 512 * turns), 2);
    count = std::max<std::int64_t>(1, up(runs, part));
  }
  static std::int64_t pack(DType t) { return pack_of(t) / (t == f16 ? 4 : 2); }
  std::int64_t width, lanes = 0, groups = 0, run = 0, span = 0, rows = 0, part = 0, count = 0;
};

}  // namespace

Generated& strides(Generated& g, std::int64_t h, std::int64_t w) { return g.head(fmt::format("#define STRIDE_H (I){}\n#define STRIDE_W (I){}", h, w)); }

Generated depthwise_head(const KernelRequest& r, const Depthwise& d, DType t) {
  Generated g(r);
  // Places on the picture go a window beyond its edges.
  const std::int64_t reach = std::max({elements(d.x), elements(d.y), d.s.window_h * d.s.window_w * d.channels, d.x[1] + 2 * spread(d.s.window_h, d.s.dilation_h), d.x[2] + 2 * spread(d.s.window_w, d.s.dilation_w)});
  g.type("T", t).type("F", is_half(t) ? f32 : t).type("I", reach < (std::int64_t{1} << 30) ? "int" : "i64");
  for (auto [name, value] : {std::pair{"WINDOW_H", d.s.window_h}, {"WINDOW_W", d.s.window_w}, {"DILATION_H", d.s.dilation_h}, {"DILATION_W", d.s.dilation_w}}) g.head(fmt::format("#define {} (I){}", name, value));
  return g.number("pictures", d.x[0]).number("channels", d.channels).body(kShared);
}

Generated depthwise_gradient_of_steps(const KernelRequest& r, const Depthwise& d) {
  const DType t = r.inputs[0].dtype;
  const std::int64_t width = pack_of(t), stride = d.s.stride_w, run = stride * std::max<std::int64_t>(1, 4 / stride), n = d.x[0] * d.x[1] * up(d.x[2], run) * d.channels;
  Generated g = depthwise_head(r, d, t);
  strides(g, d.s.stride_h, stride).head(fmt::format("#define RUN {}\n#define PHASE {}", run, d.s.w.before % stride));
  g.number("fromh", d.y[1]).number("fromw", d.y[2]).number("toh", d.x[1]).number("tow", d.x[2]).number("before_h", d.s.h.before).number("before_w", d.s.w.before).body(kGiveBack);
  if (d.channels % width != 0) return g.launch("narrow", grid_for(n));
  return g.launch("wide", grid_for(n / width), {0, 1, r.inputs.size()}, "narrow", grid_for(n));
}

Generated depthwise_filter_gradient(const KernelRequest& r) {
  const Depthwise d(*r.attributes, r.inputs[0], r.outputs[0], r.inputs[1]);
  const DType t = r.inputs[0].dtype;
  const Parts p(d, t);
  const std::int64_t n = r.outputs[0].elements();
  Generated g = depthwise_head(r, d, t);
  strides(g, d.s.stride_h, d.s.stride_w).type("Y", r.outputs[0].dtype).head(fmt::format("#define WIDTH_OF_PARTS {}\n#define ROWS {}\n#define RUN {}\n#define SPAN {}", p.width, p.rows, p.run, p.span));
  g.number("xh", d.x[1]).number("xw", d.x[2]).number("yh", d.y[1]).number("yw", d.y[2]).number("before_h", d.s.h.before).number("before_w", d.s.w.before);
  g.number("parts", p.count).number("part", p.part).number("lanes", p.lanes).number("elements", n).body(kFilter).body(kJoinParts);
  const Grid grid{std::min<std::int64_t>(p.count * p.groups * up(d.s.window_h, p.rows), 16384), 256};
  g.launch("wide", grid, p.width > 1 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{}, "narrow", grid);
  return g.launch("join", {up(n, 32), 256});
}

std::int64_t depthwise_filter_gradient_scratch(const KernelRequest& r) {
  const Depthwise d(*r.attributes, r.inputs[0], r.outputs[0], r.inputs[1]);
  return Parts(d, r.inputs[0].dtype).count * r.outputs[0].elements() * (r.inputs[0].dtype == f64 ? 8 : 4);
}

}  // namespace belfry
