// What generated pools share: windows as constants, the walks over them, packs of 16 bytes where channels are whole packs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/pools.h>

namespace belfry {

/// A thread per N channels of a pixel of y, or of x; halves are computed with as F. The window is constant, so that it costs no divisions and loops over it are unrolled;
/// they end with the picture, so that a window larger than it costs nothing.
inline constexpr const char* kPoolWalks = R"(
#define EACH_PIXEL(u, n) for (I u = (I)blockIdx.x * blockDim.x + threadIdx.x; u < (I)(n); u += (I)gridDim.x * blockDim.x)
inline F as_f(T x) { return convert<F>(x); }
template <int N> void put_pack(const Args& a, I u, const F* values) {
  Pack<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out.e[k] = convert<T>(values[k]);
  ((Pack<T, N>*)a.out[0])[u] = out;
}
/// Of a window that begins at `place`: its first element that lies on the picture.
inline I first_on(I place, I dilation) { return place < 0 ? (dilation - 1 - place) / dilation : 0; }
/// What of window (p, q) lies on the picture, row-major: f(pixel of x, position in the window).
template <class Each> void each_under(const Args& a, I p, I q, Each f) {
  const I top = p * STRIDE_H - (I)a.before_h, left = q * STRIDE_W - (I)a.before_w, first_i = first_on(top, DILATION_H), first_j = first_on(left, DILATION_W);
  for (I m = 0; m < WINDOW_H; ++m) {
    const I i = first_i + m, row = top + i * DILATION_H;
    if (i >= WINDOW_H || row >= (I)a.xh) break;
    for (I n = 0; n < WINDOW_W; ++n) {
      const I j = first_j + n, column = left + j * DILATION_W;
      if (j >= WINDOW_W || column >= (I)a.xw) break;
      f(row * (I)a.xw + column, i * WINDOW_W + j);
    }
  }
}
/// The first and last windows that hold a place: w·stride ≤ place < w·stride + spread.
inline I first_of(I place, I spread, I stride) { return place < spread ? 0 : (place - spread) / stride + 1; }
inline I last_of(I place, I stride, I count) { return place / stride < count ? place / stride : count - 1; }
/// Windows that hold a pixel, in their order, which is that of the reference's sums: f(p, q, position in the window).
template <class Each> void each_holding(const Args& a, I row, I column, Each f) {
  const I spread_h = (WINDOW_H - 1) * DILATION_H + 1, spread_w = (WINDOW_W - 1) * DILATION_W + 1;
  row += (I)a.before_h, column += (I)a.before_w;
  const I first_p = first_of(row, spread_h, STRIDE_H), last_p = last_of(row, STRIDE_H, (I)a.yh), first_q = first_of(column, spread_w, STRIDE_W), last_q = last_of(column, STRIDE_W, (I)a.yw);
  for (I m = 0; m <= (spread_h - 1) / STRIDE_H; ++m) {
    const I p = first_p + m, i = row - p * STRIDE_H;
    if (p > last_p) break;
    if (i % DILATION_H) continue;
    for (I n = 0; n <= (spread_w - 1) / STRIDE_W; ++n) {
      const I q = first_q + n, j = column - q * STRIDE_W;
      if (q > last_q) break;
      if (j % DILATION_W == 0) f(p, q, i / DILATION_H * WINDOW_W + j / DILATION_W);
    }
  }
}
)";

/// `body` has `template <int N> void pool(const Args& a)`. `aligned`: what it reads and writes in packs, inputs, then outputs.
inline Generated pool_text(const KernelRequest& r, bool backward, const std::string& body, std::vector<std::size_t> aligned) {
  const Extents &x = (backward ? r.outputs : r.inputs)[0].shape, &y = (backward ? r.inputs : r.outputs)[0].shape;
  const DType t = r.inputs[0].dtype;
  Sliding s = pool_sliding(*r.attributes, x);
  // Places on the picture go a window beyond its edges.
  const std::int64_t reach = std::max({elements(x), elements(y), s.window_h * s.window_w, x[1] + 2 * spread(s.window_h, s.dilation_h), x[2] + 2 * spread(s.window_w, s.dilation_w)});
  Generated g(r);
  g.type("T", t).type("F", is_half(t) ? f32 : t).type("I", reach < (std::int64_t{1} << 30) ? "int" : "i64");
  for (auto [name, value] : {std::pair{"WINDOW_H", s.window_h}, {"WINDOW_W", s.window_w}, {"STRIDE_H", s.stride_h}, {"STRIDE_W", s.stride_w}, {"DILATION_H", s.dilation_h}, {"DILATION_W", s.dilation_w}})
    g.head(fmt::format("#define {} (I){}", name, value));
  g.number("pictures", x[0]).number("xh", x[1]).number("xw", x[2]).number("yh", y[1]).number("yw", y[2]).number("channels", x[3]);
  g.number("before_h", s.h.before).number("before_w", s.w.before).body(kPoolWalks).body(body);
  g.entries("KERNEL void wide(const Args a) { pool<16 / sizeof(T)>(a); }\nKERNEL void narrow(const Args a) { pool<1>(a); }\n");
  const std::int64_t n = r.outputs[0].elements(), width = 16 / static_cast<std::int64_t>(size_of(t));
  if (x[3] % width != 0) return g.launch("narrow", grid_for(n));
  return g.launch("wide", grid_for(n / width), std::move(aligned), "narrow", grid_for(n));
}

inline Kernel pool_kernel(const GpuCodeRef& code, const char* name, const char* op, Generated (*text)(const KernelRequest&)) {
  return {.name = name, .op = op, .supports = [](const KernelRequest& r) { return r.outputs[0].dtype == r.inputs[0].dtype ? takes_on_gpu(r, {f32, f64, f16, bf16}) : refuse("its output is of another dtype"); },
          .prepare = [=](const KernelRequest& r) { return text(r).prepare(*code); }, .halves = true};
}

}  // namespace belfry
