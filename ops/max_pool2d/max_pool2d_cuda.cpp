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
  std::size_t from = run.add(picture(r.inputs[0].shape), {Place::input, 0}), to = run.add(picture(r.outputs[0].shape), {Place::output, 0});
  run.graph.operations = {{Kind::max_pool, {from, to}, {{s.window_h, s.window_w}, {s.stride_h, s.stride_w}, {s.h.before, s.w.before}, {s.h.after, s.w.after}, {}}}};
  out.steps = {std::move(run)};
  return out;
}

/// A thread per element of y, or of x. Windows that hold a pixel are added in their order, as the reference does.
const char* const kPools = R"(
#define EACH_ELEMENT(u, n) for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < n; u += (i64)gridDim.x * blockDim.x)
KERNEL void pool(const Args a) {
  EACH_ELEMENT(u, a.pictures * a.yh * a.yw * a.channels) {
    const i64 c = u % a.channels, q = u / a.channels % a.yw, p = u / a.channels / a.yw % a.yh, picture = u / a.channels / a.yw / a.yh;
    const T* x = (const T*)a.in[0] + picture * a.xh * a.xw * a.channels + c;
    T best = 0;
    int index = -1;
    for (i64 i = 0; i < a.window_h; ++i) {
      const i64 row = p * a.stride_h - a.before_h + i * a.dilation_h;
      if (row < 0 || row >= a.xh) continue;
      for (i64 j = 0; j < a.window_w; ++j) {
        const i64 column = q * a.stride_w - a.before_w + j * a.dilation_w;
        if (column < 0 || column >= a.xw) continue;
        const T v = x[(row * a.xw + column) * a.channels];
        if (index < 0 || v > best || (v != v && best == best)) best = v, index = (int)(i * a.window_w + j);
      }
    }
    ((T*)a.out[0])[u] = best;
    if (INDEX) ((unsigned char*)a.out[1])[u] = (unsigned char)index;
  }
}
/// The first and last windows that hold a place: w·stride ≤ place < w·stride + spread.
inline i64 first_of(i64 place, i64 spread, i64 stride) { return place < spread ? 0 : (place - spread) / stride + 1; }
inline i64 last_of(i64 place, i64 stride, i64 count) { return place / stride < count ? place / stride : count - 1; }
KERNEL void give_back(const Args a) {
  const i64 spread_h = (a.window_h - 1) * a.dilation_h + 1, spread_w = (a.window_w - 1) * a.dilation_w + 1;
  EACH_ELEMENT(u, a.pictures * a.xh * a.xw * a.channels) {
    const i64 c = u % a.channels, column = u / a.channels % a.xw + a.before_w, row = u / a.channels / a.xw % a.xh + a.before_h, picture = u / a.channels / a.xw / a.xh;
    T dx = 0;
    for (i64 p = first_of(row, spread_h, a.stride_h); p <= last_of(row, a.stride_h, a.yh); ++p) {
      const i64 i = row - p * a.stride_h;
      if (i % a.dilation_h) continue;
      for (i64 q = first_of(column, spread_w, a.stride_w); q <= last_of(column, a.stride_w, a.yw); ++q) {
        const i64 j = column - q * a.stride_w, at = ((picture * a.yh + p) * a.yw + q) * a.channels + c;
        if (j % a.dilation_w == 0 && ((const unsigned char*)a.in[1])[at] == i / a.dilation_h * a.window_w + j / a.dilation_w) dx += ((const T*)a.in[0])[at];
      }
    }
    ((T*)a.out[0])[u] = dx;
  }
}
)";

Kernel generated(const GpuCodeRef& code, const char* op, const char* entry, bool backward) {
  return {.name = "nvrtc_max_pool2d", .op = op, .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {f32, f64}); }, .prepare = [=](const KernelRequest& r) {
            const Extents &x = backward ? r.outputs[0].shape : r.inputs[0].shape, &y = backward ? r.inputs[0].shape : r.outputs[0].shape;
            Sliding s = pool_sliding(*r.attributes, x);
            Generated g(r);
            g.type("T", r.inputs[0].dtype).head(!backward && r.wanted.size() > 1 && r.wanted[1] ? "#define INDEX 1" : "#define INDEX 0");
            g.number("pictures", x[0]).number("xh", x[1]).number("xw", x[2]).number("yh", y[1]).number("yw", y[2]).number("channels", x[3]);
            g.number("window_h", s.window_h).number("window_w", s.window_w).number("stride_h", s.stride_h).number("stride_w", s.stride_w).number("dilation_h", s.dilation_h);
            g.number("dilation_w", s.dilation_w).number("before_h", s.h.before).number("before_w", s.w.before).body(kPools);
            return g.launch(entry, grid_for(r.outputs[0].elements())).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> max_pool2d_generated_cuda(const GpuCodeRef& code) {
  return {generated(code, "max_pool2d", "pool", false), generated(code, "max_pool2d_gradient", "give_back", true)};
}

std::vector<SequenceKernel> cudnn::max_pool2d_sequences() { return {{"cudnn_max_pool2d", "max_pool2d", forward}}; }

std::vector<Kernel> max_pool2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit) { return kernels_of(max_pool2d_sequences(), toolkit); }

}  // namespace belfry
