#include <belfry/ops/cuda_kernels.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

/// A thread per line, in order and in f64 (or i64), as the CPU.
std::vector<Kernel> cumsum_cuda(const GpuCodeRef& code) {
  return {{.name = "nvrtc_cumsum", .op = "cumsum", .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {f32, f64, i32, i64}); }, .prepare = [code](const KernelRequest& r) {
             AlongAxis along(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size())));
             Generated g(r);
             g.type("T", r.inputs[0].dtype).type("A", is_float(r.inputs[0].dtype) ? "double" : "i64").number("lines", along.outer * along.inner).number("n", along.n).number("inner", along.inner);
             g.number("exclusive", r.attributes->flag("exclusive")).number("reverse", r.attributes->flag("reverse")).body(R"(
KERNEL void cumsum(const Args a) {
  for (i64 line = (i64)blockIdx.x * blockDim.x + threadIdx.x; line < a.lines; line += (i64)gridDim.x * blockDim.x) {
    const i64 first = line / a.inner * a.n * a.inner + line % a.inner;
    A sum = 0;
    for (i64 j = 0; j < a.n; ++j) {
      const i64 at = first + (a.reverse ? a.n - 1 - j : j) * a.inner;
      const A before = sum;
      sum += (A)((const T*)a.in[0])[at];
      ((T*)a.out[0])[at] = (T)(a.exclusive ? before : sum);
    }
  }
}
)");
             return g.launch("cumsum", grid_for(along.outer * along.inner, 64)).prepare(*code);
           }}};
}

}  // namespace belfry
