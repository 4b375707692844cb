#include <belfry/ops/cuda_kernels.h>

#include <fmt/format.h>

#include <limits>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {
namespace {

constexpr std::int64_t kMost = 64;  // passes over a line

/// The next in order is the best of those behind the last one found: k passes over the line. NaN is above all numbers; equals by position.
Kernel top_k(const GpuCodeRef& code) {
  auto line = [](const KernelRequest& r) { return AlongAxis(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size()))); };
  return {.name = "nvrtc_top_k", .op = "top_k",
          .supports = [=](const KernelRequest& r) {
            std::int64_t n = line(r).n, k = r.attributes->integer("k");
            if (n < k || k > kMost || n > std::numeric_limits<std::int32_t>::max()) return refuse(fmt::format("the {} best of {}", k, n));
            return takes_on_gpu(r, {f32, f64, i32, i64});
          },
          .prepare = [=](const KernelRequest& r) {
            AlongAxis along = line(r);
            Generated g(r);
            Grid grid = g.type("T", r.inputs[0].dtype).lines(along.outer, along.n, along.inner);
            g.head(r.attributes->flag("largest") ? "#define LARGEST 1" : "#define LARGEST 0").number("k", r.attributes->integer("k")).body(R"(
inline bool above(T p, T q) { return p != p ? q == q : p > q; }
/// Whether element p stands before element q of a line; -1 stands behind all.
struct First {
  const T* x;
  i64 step;
  bool before(int p, int q) const {
    if (q < 0) return p >= 0;
    if (p < 0) return false;
    const T u = x[p * step], v = x[q * step];
    return LARGEST ? above(u, v) || (p < q && !above(v, u)) : above(v, u) || (p < q && !above(u, v));
  }
  int operator()(int p, int q) const { return before(p, q) ? p : q; }
};
KERNEL void best(const Args a) {
  EACH_LINE(line) {
    const i64 o = line / a.inner, i = line % a.inner;
    const T* x = (const T*)a.in[0] + o * a.n * a.inner + i;
    const First first{x, a.inner};
    int last = -1;
    for (i64 j = 0; j < a.k; ++j) {
      int found = -1;
      EACH_OF(k, a.n) if (last < 0 || first.before(last, (int)k)) found = first((int)k, found);
      last = across(found, first);
      if (threadIdx.x % WIDTH == 0) {
        ((T*)a.out[0])[(o * a.k + j) * a.inner + i] = x[last * a.inner];
        ((int*)a.out[1])[(o * a.k + j) * a.inner + i] = last;
      }
    }
  }
}
)");
            return g.launch("best", grid).prepare(*code);
          }};
}

/// Whether fewer than k of finite predictions are above the target's.
Kernel in_top_k(const GpuCodeRef& code) {
  return {.name = "nvrtc_count_above", .op = "in_top_k",
          .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {i32, i64, u8}, 0).ok ? takes_on_gpu(r, {f32, f64}, 1) : takes_on_gpu(r, {i32, i64, u8}, 0); },
          .prepare = [code](const KernelRequest& r) {
            Generated g(r);
            Grid grid = g.type("K", r.inputs[0].dtype).type("T", r.inputs[1].dtype).lines(r.inputs[0].elements(), r.inputs[1].shape.back(), 1);
            g.number("k", r.attributes->integer("k")).body(R"(
KERNEL void in_top_k(const Args a) {
  EACH_LINE(line) {
    const T* x = (const T*)a.in[1] + line * a.n;
    const i64 target = (i64)((const K*)a.in[0])[line];
    const bool known = target >= 0 && target < a.n;
    i64 above = 0, wild = 0;
    EACH_OF(i, a.n) {
      wild += !(x[i] - x[i] == 0);
      above += known && x[i] > x[target];
    }
    above = across(above, Add());
    wild = across(wild, Add());
    if (threadIdx.x % WIDTH == 0) ((bool*)a.out[0])[line] = known && wild == 0 && above < a.k;
  }
}
)");
            return g.launch("in_top_k", grid).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> top_k_cuda(const GpuCodeRef& code) { return {top_k(code), in_top_k(code)}; }

}  // namespace belfry
