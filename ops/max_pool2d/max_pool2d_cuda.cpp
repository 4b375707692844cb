#include <utility>
#include <vector>

#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda/pools_internal.h>
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

const char* const kPool = R"(
template <int N> void pool(const Args& a) {
  const I packs = (I)a.channels / N, yh = (I)a.yh, yw = (I)a.yw;
  EACH_PIXEL(u, a.pictures * a.yh * a.yw * packs) {
    const I c = u % packs, q = u / packs % yw, p = u / packs / yw % yh, picture = u / packs / yw / yh;
    const Pack<T, N>* x = (const Pack<T, N>*)a.in[0] + picture * (I)a.xh * (I)a.xw * packs + c;
    Pack<T, N> best = {};
    Pack<unsigned char, N> index = {};
    bool any = false;
    each_under(a, p, q, [&](I pixel, I position) {
      const Pack<T, N> v = x[pixel * packs];
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const F is = as_f(v.e[k]), was = as_f(best.e[k]);
        if (!any || is > was || (is != is && was == was)) best.e[k] = v.e[k], index.e[k] = (unsigned char)position;
      }
      any = true;
    });
    ((Pack<T, N>*)a.out[0])[u] = best;
    if (INDEX) ((Pack<unsigned char, N>*)a.out[1])[u] = index;
  }
}
)";
const char* const kGiveBack = R"(
template <int N> void pool(const Args& a) {
  const I packs = (I)a.channels / N, yh = (I)a.yh, yw = (I)a.yw, xh = (I)a.xh, xw = (I)a.xw;
  EACH_PIXEL(u, a.pictures * a.xh * a.xw * packs) {
    const I c = u % packs, column = u / packs % xw, row = u / packs / xw % xh, picture = u / packs / xw / xh;
    F dx[N] = {};
    each_holding(a, row, column, [&](I p, I q, I position) {
      const I at = ((picture * yh + p) * yw + q) * packs + c;
      const Pack<T, N> dy = ((const Pack<T, N>*)a.in[0])[at];
      const Pack<unsigned char, N> index = ((const Pack<unsigned char, N>*)a.in[1])[at];
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (index.e[k] == position) dx[k] += as_f(dy.e[k]);
    });
    put_pack<N>(a, u, dx);
  }
}
)";

Generated generated(const KernelRequest& r) {
  const bool index = r.wanted.size() > 1 && r.wanted[1];
  std::vector<std::size_t> aligned = {0, 1};
  if (index) aligned.push_back(2);
  return pool_text(r, false, kPool, std::move(aligned)).head(index ? "#define INDEX 1" : "#define INDEX 0");
}

}  // namespace

std::vector<Kernel> max_pool2d_generated_cuda(const GpuCodeRef& code) {
  return {pool_kernel(code, "nvrtc_max_pool2d", "max_pool2d", generated),
          pool_kernel(code, "nvrtc_max_pool2d", "max_pool2d_gradient", [](const KernelRequest& r) { return pool_text(r, true, kGiveBack, {0, 1, r.inputs.size()}); })};
}

/// No halves: its engines write f32 where y is of halves, and so behind its end.
std::vector<SequenceKernel> cudnn::max_pool2d_sequences() { return {{"cudnn_max_pool2d", "max_pool2d", forward}}; }

std::vector<Kernel> max_pool2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit) { return kernels_of(max_pool2d_sequences(), toolkit); }

}  // namespace belfry
