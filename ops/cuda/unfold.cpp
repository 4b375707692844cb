#include <algorithm>

#include <fmt/format.h>

#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda/generated_internal.h>

namespace belfry::cudnn {

namespace {

/// A thread has a row of a window's taps, four at a time: none is written before all four were read.
const char* const kUnfold = R"(
inline bool inside(I at, I size) { return at >= 0 && at < size; }
template <int N> void unfold(const Args& a) {
  const I packs = (I)a.channels / N, yh = (I)a.yh, yw = (I)a.yw, xh = (I)a.xh, xw = (I)a.xw;
  for (I u = (I)blockIdx.x * blockDim.x + threadIdx.x; u < (I)a.images * yh * yw * WINDOW_H * packs; u += (I)gridDim.x * blockDim.x) {
    const I c = u % packs, taps = u / packs, window = taps / WINDOW_H, image = window / yw / yh;
    const I row = window / yw % yh * STRIDE_H - (I)a.before_h + taps % WINDOW_H * DILATION_H, column = window % yw * STRIDE_W - (I)a.before_w;
    const Pack<float, N>* from = (const Pack<float, N>*)a.in[0] + c;
    Pack<float, N>* to = (Pack<float, N>*)a.out[0] + taps * WINDOW_W * packs + c;
    for (int first = 0; first < WINDOW_W; first += 4) {
      Pack<float, N> v[4] = {};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const I at = column + (first + j) * DILATION_W;
        if (first + j < WINDOW_W && inside(row, xh) && inside(at, xw)) v[j] = from[((image * xh + row) * xw + at) * packs];
      }
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (first + j < WINDOW_W) to[(first + j) * packs] = v[j];
    }
  }
}
KERNEL void wide(const Args a) { unfold<4>(a); }
KERNEL void narrow(const Args a) { unfold<1>(a); }
)";

/// A thread has a pixel, and adds what the windows that hold it have for it, tap by tap, of four at a time.
const char* const kFold = R"(
inline I nearest(I at, I size) { return at < 0 ? 0 : at < size ? at : size - 1; }
template <int N> void fold(const Args& a) {
  const I packs = (I)a.channels / N, yh = (I)a.yh, yw = (I)a.yw, xh = (I)a.xh, xw = (I)a.xw;
  for (I u = (I)blockIdx.x * blockDim.x + threadIdx.x; u < (I)a.images * xh * xw * packs; u += (I)gridDim.x * blockDim.x) {
    const I c = u % packs, pixel = u / packs, image = pixel / xw / xh, high = pixel / xw % xh + (I)a.before_h, wide = pixel % xw + (I)a.before_w;
    const Pack<float, N>* from = (const Pack<float, N>*)a.in[0] + c;
    Pack<float, N> sum = {};
    for (int i = 0; i < WINDOW_H; ++i) {
      const I down = high - i * DILATION_H, p = down / STRIDE_H;
      if (down < 0 || down % STRIDE_H != 0 || p >= yh) continue;
      for (int first = 0; first < WINDOW_W; first += 4) {
        Pack<float, N> v[4];
        bool holds[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const I along = wide - (first + j) * DILATION_W, q = along / STRIDE_W;
          holds[j] = first + j < WINDOW_W && along >= 0 && along % STRIDE_W == 0 && q < yw;
          v[j] = from[((((image * yh + p) * yw + nearest(q, yw)) * WINDOW_H + i) * WINDOW_W + (first + j < WINDOW_W ? first + j : 0)) * packs];
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (!holds[j]) continue;
#pragma unroll
          for (int k = 0; k < N; ++k) sum.e[k] += v[j].e[k];
        }
      }
    }
    ((Pack<float, N>*)a.out[0])[u] = sum;
  }
}
KERNEL void wide(const Args a) { fold<4>(a); }
KERNEL void narrow(const Args a) { fold<1>(a); }
)";

}  // namespace

std::unique_ptr<Prepared> unfold_kernel(GpuCode& code, const Unfold& u) {
  const Window& w = u.window;
  const std::int64_t channels = u.x[3], rows = u.y[0] * u.y[1] * u.y[2], threads = (u.back ? u.x[0] * u.x[1] * u.x[2] : rows * w.size[0]) * channels;
  // Places on the picture go a window beyond its edges, and a grid beyond the last.
  const std::int64_t reach = std::max({u.x[0] * u.x[1] * u.x[2] * channels, rows * w.size[0] * w.size[1] * channels, (u.x[1] + 2 * w.size[0] * w.dilations[0]) * (u.x[2] + 2 * w.size[1] * w.dilations[1]) * channels});
  Generated g(1, 1);
  g.type("I", reach < (std::int64_t{1} << 30) ? "int" : "i64");
  for (auto [name, of] : {std::pair{"WINDOW", &w.size}, {"STRIDE", &w.strides}, {"DILATION", &w.dilations}}) g.head(fmt::format("#define {0}_H (I){1}\n#define {0}_W (I){2}", name, (*of)[0], (*of)[1]));
  g.number("images", u.x[0]).number("channels", channels).number("xh", u.x[1]).number("xw", u.x[2]).number("yh", u.y[1]).number("yw", u.y[2]).number("before_h", w.before[0]).number("before_w", w.before[1]);
  g.body(u.back ? kFold : kUnfold);
  if (channels % 4 != 0) g.launch("narrow", grid_for(threads));
  else g.launch("wide", grid_for(threads / 4), {0, 1}, "narrow", grid_for(threads));
  return g.prepare(code);
}

}  // namespace belfry::cudnn
