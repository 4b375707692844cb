#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/pools.h>

namespace belfry {

namespace {

using namespace cudnn;

/// Without the index, of which cuDNN does not say what its numbers mean.
Sequence forward(const KernelRequest& r) {
  if (r.wanted.size() > 1 && r.wanted[1]) return none("somebody reads the index, and cuDNN's is not said to be the position in the window");
  Sliding s = pool_sliding(*r.attributes, r.inputs[0].shape);
  if (s.dilation_h != 1 || s.dilation_w != 1) return none("cuDNN's pools take no dilations");
  Sequence out;
  out.engine_bytes = kPoolBytes;
  Run run;
  std::size_t from = run.add(picture(r.inputs[0].shape, r.inputs[0].dtype), {Place::input, 0}), to = run.add(picture(r.outputs[0].shape, r.outputs[0].dtype), {Place::output, 0});
  run.graph.operations = {{Kind::max_pool, {from, to}, {{s.window_h, s.window_w}, {s.stride_h, s.stride_w}, {s.h.before, s.w.before}, {s.h.after, s.w.after}, {}}}};
  out.steps = {std::move(run)};
  return out;
}

/// A thread per N channels of a pixel of y, or of x; halves are compared and added as F. The window is constant, so that it costs no divisions.
const char* const kPixels = R"(
#define EACH_PIXEL(u, n) for (I u = (I)blockIdx.x * blockDim.x + threadIdx.x; u < (I)(n); u += (I)gridDim.x * blockDim.x)
inline F value(T x) { return convert<F>(x); }
)";
const char* const kPool = R"(
template <int N> void pool(const Args& a) {
  const I packs = (I)a.channels / N, yh = (I)a.yh, yw = (I)a.yw, xh = (I)a.xh, xw = (I)a.xw;
  EACH_PIXEL(u, a.pictures * a.yh * a.yw * packs) {
    const I c = u % packs, q = u / packs % yw, p = u / packs / yw % yh, picture = u / packs / yw / yh;
    const Pack<T, N>* x = (const Pack<T, N>*)a.in[0] + picture * xh * xw * packs + c;
    Pack<T, N> best = {};
    Pack<unsigned char, N> index = {};
    bool any = false;
    for (int i = 0; i < WINDOW_H; ++i) {
      const I row = p * STRIDE_H - (I)a.before_h + i * DILATION_H;
      if (row < 0 || row >= xh) continue;
      for (int j = 0; j < WINDOW_W; ++j) {
        const I column = q * STRIDE_W - (I)a.before_w + j * DILATION_W;
        if (column < 0 || column >= xw) continue;
        const Pack<T, N> v = x[(row * xw + column) * packs];
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const F is = value(v.e[k]), was = value(best.e[k]);
          if (!any || is > was || (is != is && was == was)) best.e[k] = v.e[k], index.e[k] = (unsigned char)(i * WINDOW_W + j);
        }
        any = true;
      }
    }
    ((Pack<T, N>*)a.out[0])[u] = best;
    if (INDEX) ((Pack<unsigned char, N>*)a.out[1])[u] = index;
  }
}
KERNEL void wide(const Args a) { pool<16 / sizeof(T)>(a); }
KERNEL void narrow(const Args a) { pool<1>(a); }
)";
/// Windows that hold a pixel are added in their order, as the reference does.
const char* const kGiveBack = R"(
/// The first and last windows that hold a place: w·stride ≤ place < w·stride + spread.
inline I first_of(I place, I spread, I stride) { return place < spread ? 0 : (place - spread) / stride + 1; }
inline I last_of(I place, I stride, I count) { return place / stride < count ? place / stride : count - 1; }
template <int N> void give_back(const Args& a) {
  const I spread_h = (WINDOW_H - 1) * DILATION_H + 1, spread_w = (WINDOW_W - 1) * DILATION_W + 1;
  const I packs = (I)a.channels / N, yh = (I)a.yh, yw = (I)a.yw, xh = (I)a.xh, xw = (I)a.xw;
  EACH_PIXEL(u, a.pictures * a.xh * a.xw * packs) {
    const I c = u % packs, column = u / packs % xw + (I)a.before_w, row = u / packs / xw % xh + (I)a.before_h, picture = u / packs / xw / xh;
    const I last_p = last_of(row, STRIDE_H, yh), first_q = first_of(column, spread_w, STRIDE_W), last_q = last_of(column, STRIDE_W, yw);
    F dx[N] = {};
    for (I p = first_of(row, spread_h, STRIDE_H); p <= last_p; ++p) {
      const I i = row - p * STRIDE_H;
      if (i % DILATION_H) continue;
      for (I q = first_q; q <= last_q; ++q) {
        const I j = column - q * STRIDE_W, at = ((picture * yh + p) * yw + q) * packs + c;
        if (j % DILATION_W) continue;
        const Pack<T, N> dy = ((const Pack<T, N>*)a.in[0])[at];
        const Pack<unsigned char, N> index = ((const Pack<unsigned char, N>*)a.in[1])[at];
#pragma unroll
        for (int k = 0; k < N; ++k)
          if (index.e[k] == i / DILATION_H * WINDOW_W + j / DILATION_W) dx[k] += value(dy.e[k]);
      }
    }
    Pack<T, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out.e[k] = convert<T>(dx[k]);
    ((Pack<T, N>*)a.out[0])[u] = out;
  }
}
KERNEL void wide(const Args a) { give_back<16 / sizeof(T)>(a); }
KERNEL void narrow(const Args a) { give_back<1>(a); }
)";

Generated pooling(const KernelRequest& r, bool backward) {
  const Extents &x = backward ? r.outputs[0].shape : r.inputs[0].shape, &y = backward ? r.inputs[0].shape : r.outputs[0].shape;
  const DType t = r.inputs[0].dtype;
  const bool index = !backward && r.wanted.size() > 1 && r.wanted[1];
  Sliding s = pool_sliding(*r.attributes, x);
  // Places on the picture go a window beyond its edges.
  const std::int64_t reach = std::max({elements(x), elements(y), x[1] + 2 * spread(s.window_h, s.dilation_h), x[2] + 2 * spread(s.window_w, s.dilation_w)});
  Generated g(r);
  g.type("T", t).type("F", is_half(t) ? f32 : t).type("I", reach < (std::int64_t{1} << 30) ? "int" : "i64").head(index ? "#define INDEX 1" : "#define INDEX 0");
  for (auto [name, value] : {std::pair{"WINDOW_H", s.window_h}, {"WINDOW_W", s.window_w}, {"STRIDE_H", s.stride_h}, {"STRIDE_W", s.stride_w}, {"DILATION_H", s.dilation_h}, {"DILATION_W", s.dilation_w}})
    g.head(fmt::format("#define {} (I){}", name, value));
  g.number("pictures", x[0]).number("xh", x[1]).number("xw", x[2]).number("yh", y[1]).number("yw", y[2]).number("channels", x[3]);
  g.number("before_h", s.h.before).number("before_w", s.w.before).body(kPixels).body(backward ? kGiveBack : kPool);
  const std::int64_t n = r.outputs[0].elements(), width = 16 / static_cast<std::int64_t>(size_of(t));
  if (x[3] % width != 0) return g.launch("narrow", grid_for(n));
  std::vector<std::size_t> aligned = {0, r.inputs.size()};
  if (backward || index) aligned.push_back(backward ? 1 : r.inputs.size() + 1);
  return g.launch("wide", grid_for(n / width), aligned, "narrow", grid_for(n));
}

Kernel generated(const GpuCodeRef& code, const char* op, bool backward) {
  return {.name = "nvrtc_max_pool2d", .op = op, .supports = [](const KernelRequest& r) { return r.outputs[0].dtype == r.inputs[0].dtype ? takes_on_gpu(r, {f32, f64, f16, bf16}) : refuse("its output is of another dtype"); },
          .prepare = [=](const KernelRequest& r) { return pooling(r, backward).prepare(*code); }, .halves = true};
}

}  // namespace

std::vector<Kernel> max_pool2d_generated_cuda(const GpuCodeRef& code) {
  return {generated(code, "max_pool2d", false), generated(code, "max_pool2d_gradient", true)};
}

std::vector<SequenceKernel> cudnn::max_pool2d_sequences() { return {{"cudnn_max_pool2d", "max_pool2d", forward, true}}; }

std::vector<Kernel> max_pool2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit) { return kernels_of(max_pool2d_sequences(), toolkit); }

}  // namespace belfry
