#include <belfry/ops/cuda_kernels.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {
namespace {

/// As the CPU: a NaN counts where it stands first, and nowhere else; among equals the first, or with `last` the last.
Kernel kernel(const GpuCodeRef& code, const char* op, const char* better) {
  return {.name = "nvrtc_argmax", .op = op,
          .supports = [](const KernelRequest& r) { return r.inputs[0].elements() == 0 ? refuse("there are no elements") : takes_on_gpu(r, {f32, f64, i32, i64}); },
          .prepare = [=](const KernelRequest& r) {
            AlongAxis along(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size())));
            Generated g(r);
            Grid grid = g.type("T", r.inputs[0].dtype).lines(along.outer, along.n, along.inner);
            g.head(std::string("#define BETTER(p, q) ((p) ") + better + " (q))").number("last", r.attributes->flag("last")).body(R"(
struct Best { T v; int at; };
struct Choose {
  bool last;
  bool before(Best p, Best q) const { return q.at < 0 || (p.at >= 0 && (BETTER(p.v, q.v) || (p.v == q.v && (last ? p.at > q.at : p.at < q.at)))); }
  Best operator()(Best p, Best q) const { return before(p, q) ? p : q; }
};
template <> Best across(Best b, Choose choose) {
  if (WIDTH == 1) return b;
  for (int apart = 16; apart > 0; apart /= 2) b = choose(b, Best{__shfl_xor_sync(LANES, b.v, apart), __shfl_xor_sync(LANES, b.at, apart)});
  if (WIDTH == 32) return b;
  __shared__ T values[8];
  __shared__ int places[8];
  __syncthreads();
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = b.v, places[threadIdx.x / 32] = b.at;
  __syncthreads();
  for (int i = 0; i < 8; ++i) b = choose(b, Best{values[i], places[i]});
  return b;
}
KERNEL void argmax(const Args a) {
  const Choose choose{a.last != 0};
  EACH_LINE(line) {
    const T* x = (const T*)a.in[0] + line / a.inner * a.n * a.inner + line % a.inner;
    Best best{x[0], -1};
    EACH_OF(k, a.n) if (x[k * a.inner] == x[k * a.inner]) best = choose(best, Best{x[k * a.inner], (int)k});
    best = across(best, choose);
    if (threadIdx.x % WIDTH == 0) ((int*)a.out[0])[line] = x[0] == x[0] && best.at >= 0 ? best.at : 0;
  }
}
)");
            return g.launch("argmax", grid).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> argmax_cuda(const GpuCodeRef& code) { return {kernel(code, "argmax", ">"), kernel(code, "argmin", "<")}; }

}  // namespace belfry
