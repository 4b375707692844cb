#include <string>
#include <utility>
#include <vector>

#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda/pools_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/pools.h>

namespace belfry {

namespace {

using namespace cudnn;

/// The mean of what lies on the picture, as cuDNN's that leaves padding out; its gradient goes the other way.
Sequence pool(const KernelRequest& r, Kind kind) {
  const bool backward = kind == Kind::avg_pool_gradient;
  Sliding s = pool_sliding(*r.attributes, (backward ? r.outputs : r.inputs)[0].shape);
  if (s.dilation_h != 1 || s.dilation_w != 1) return none("cuDNN's pools take no dilations");
  Sequence out;
  out.engine_bytes = kPoolBytes;
  Run run;
  std::size_t from = run.add(picture(r.inputs[0].shape), {Place::input, 0}), to = run.add(picture(r.outputs[0].shape), {Place::output, 0});
  run.graph.operations = {{kind, {from, to}, {{s.window_h, s.window_w}, {s.stride_h, s.stride_w}, {s.h.before, s.w.before}, {s.h.after, s.w.after}, {}}}};
  out.steps = {std::move(run)};
  return out;
}

const char* const kCount = R"(
/// How many elements of a window that begins at `place` lie on a picture of that size.
inline I held(I place, I window, I dilation, I size) {
  const I end = (size - place + dilation - 1) / dilation;
  return (end < window ? end : window) - first_on(place, dilation);
}
inline F count_of(const Args& a, I p, I q) {
  return (F)(held(p * STRIDE_H - (I)a.before_h, WINDOW_H, DILATION_H, (I)a.xh) * held(q * STRIDE_W - (I)a.before_w, WINDOW_W, DILATION_W, (I)a.xw));
}
)";
/// Summed as on the CPU, then divided.
const char* const kMean = R"(
template <int N> void pool(const Args& a) {
  const I packs = (I)a.channels / N, yh = (I)a.yh, yw = (I)a.yw;
  EACH_PIXEL(u, a.pictures * a.yh * a.yw * packs) {
    const I c = u % packs, q = u / packs % yw, p = u / packs / yw % yh, picture = u / packs / yw / yh;
    const Pack<T, N>* x = (const Pack<T, N>*)a.in[0] + picture * (I)a.xh * (I)a.xw * packs + c;
    F sum[N] = {};
    each_under(a, p, q, [&](I pixel, I) {
      const Pack<T, N> v = x[pixel * packs];
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += as_f(v.e[k]);
    });
    const F count = count_of(a, p, q);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] /= count;
    put_pack<N>(a, u, sum);
  }
}
)";
/// A quotient per window, not one per channel.
const char* const kGiveBack = R"(
template <int N> void pool(const Args& a) {
  const I packs = (I)a.channels / N, yh = (I)a.yh, yw = (I)a.yw, xh = (I)a.xh, xw = (I)a.xw;
  EACH_PIXEL(u, a.pictures * a.xh * a.xw * packs) {
    const I c = u % packs, column = u / packs % xw, row = u / packs / xw % xh, picture = u / packs / xw / xh;
    F dx[N] = {};
    each_holding(a, row, column, [&](I p, I q, I) {
      const Pack<T, N> dy = ((const Pack<T, N>*)a.in[0])[((picture * yh + p) * yw + q) * packs + c];
      const F share = F(1) / count_of(a, p, q);
#pragma unroll
      for (int k = 0; k < N; ++k) dx[k] += as_f(dy.e[k]) * share;
    });
    put_pack<N>(a, u, dx);
  }
}
)";

Generated generated(const KernelRequest& r, bool backward) {
  return pool_text(r, backward, std::string(kCount) + (backward ? kGiveBack : kMean), {0, r.inputs.size()});
}

}  // namespace

std::vector<Kernel> avg_pool2d_generated_cuda(const GpuCodeRef& code) {
  return {pool_kernel(code, "nvrtc_avg_pool2d", "avg_pool2d", [](const KernelRequest& r) { return generated(r, false); }),
          pool_kernel(code, "nvrtc_avg_pool2d", "avg_pool2d_gradient", [](const KernelRequest& r) { return generated(r, true); })};
}

/// No halves: its engines write f32 where the output is of halves, and so behind its end.
std::vector<SequenceKernel> cudnn::avg_pool2d_sequences() {
  return {{"cudnn_avg_pool2d", "avg_pool2d", [](const KernelRequest& r) { return pool(r, Kind::avg_pool); }},
          {"cudnn_avg_pool2d", "avg_pool2d_gradient", [](const KernelRequest& r) { return pool(r, Kind::avg_pool_gradient); }}};
}

std::vector<Kernel> avg_pool2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit) { return kernels_of(avg_pool2d_sequences(), toolkit); }

}  // namespace belfry
