#include <belfry/ops/cuda_kernels.h>

#include <fmt/format.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {
namespace {

/// What an index says that is outside the axis, as the CPU's kernels do.
auto outside_axis(std::int64_t n) {
  return [n](std::int64_t position, const std::string& index) { return fmt::format("[take_along_axis] index {} at position {} is outside an axis of {}", index, position, n); };
}

/// Element j of each line. An index outside the axis gives zero, and a fault that the host sees when the step is over.
Kernel take(const GpuCodeRef& code) {
  return {.name = "nvrtc_take", .op = "take_along_axis", .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {i32, i64, u8}, 1); }, .prepare = [code](const KernelRequest& r) {
            int axis = from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size()));
            AlongAxis from(r.inputs[0].shape, axis), taken(r.inputs[1].shape, axis);
            Generated g(r);
            g.type("K", r.inputs[1].dtype).type("T", r.inputs[0].dtype).number("count", r.inputs[1].elements()).number("n", from.n).number("taken", taken.n);
            g.number("inner", from.inner).faults(outside_axis(from.n)).body(R"(
KERNEL void take(const Args a) {
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.count; u += (i64)gridDim.x * blockDim.x) {
    const i64 k = (i64)((const K*)a.in[1])[u];
    if (k < 0 || k >= a.n) fault(a.fault, u, k);
    ((T*)a.out[0])[u] = k >= 0 && k < a.n ? ((const T*)a.in[0])[(u / a.inner / a.taken * a.n + k) * a.inner + u % a.inner] : T{};
  }
}
)");
            return g.launch("take", grid_for(r.inputs[1].elements())).prepare(*code);
          }};
}

/// A thread per line: what falls on one element is added in the order of the indices.
Kernel gradient(const GpuCodeRef& code) {
  return {.name = "nvrtc_give", .op = "take_along_axis_gradient",
          .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {i32, i64, u8}, 0).ok ? takes_on_gpu(r, {f32, f64}, 1) : takes_on_gpu(r, {i32, i64, u8}, 0); },
          .prepare = [code](const KernelRequest& r) {
            int axis = from_front(r.attributes->integer("axis"), static_cast<int>(r.outputs[0].shape.size()));
            AlongAxis to(r.outputs[0].shape, axis), taken(r.inputs[0].shape, axis);
            Generated g(r);
            g.type("K", r.inputs[0].dtype).type("T", r.outputs[0].dtype).number("lines", to.outer * to.inner).number("n", to.n).number("taken", taken.n);
            g.number("inner", to.inner).faults(outside_axis(to.n)).body(R"(
KERNEL void give(const Args a) {
  for (i64 line = (i64)blockIdx.x * blockDim.x + threadIdx.x; line < a.lines; line += (i64)gridDim.x * blockDim.x) {
    const i64 o = line / a.inner, i = line % a.inner;
    T* dx = (T*)a.out[0] + o * a.n * a.inner + i;
    for (i64 k = 0; k < a.n; ++k) dx[k * a.inner] = 0;
#pragma unroll 1
    for (i64 j = 0; j < a.taken; ++j) {
      const i64 at = (o * a.taken + j) * a.inner + i, k = (i64)((const K*)a.in[0])[at];
      if (k < 0 || k >= a.n) fault(a.fault, at, k);
      else dx[k * a.inner] += ((const T*)a.in[1])[at];
    }
  }
}
)");
            return g.launch("give", grid_for(to.outer * to.inner, 64)).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> take_along_axis_cuda(const GpuCodeRef& code) { return {take(code), gradient(code)}; }

}  // namespace belfry
