#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/elementwise_internal.h>

#include <string>

#include <fmt/format.h>

namespace belfry {
namespace {

/// Of integers, as the CPU: cut towards zero, and the least number by −1 is itself. By zero it gives zero, and a fault that the host sees when the step is over.
Generated divided(const KernelRequest& r) {
  const Extents& shape = r.outputs[0].shape;
  const Lying a = stretched(r.inputs[0], shape), b = stretched(r.inputs[1], shape);
  Generated g(r);
  g.type("T", r.outputs[0].dtype).number("n", r.outputs[0].elements());
  std::string walk;
  for (std::size_t d = shape.size(); d-- > 0;) {
    g.number(fmt::format("m{}", d), shape[d]).number(fmt::format("s{}", d), a.strides[d]).number(fmt::format("t{}", d), b.strides[d]);
    walk += fmt::format("    {{ const i64 i = left % a.m{0}; left /= a.m{0}; p += i * a.s{0}; q += i * a.t{0}; }}\n", d);
  }
  g.faults([](std::int64_t, const std::string&) { return "[div] integer division by zero"; });
  g.body("KERNEL void divide(const Args a) {\n  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.n; u += (i64)gridDim.x * blockDim.x) {\n    i64 left = u, p = 0, q = 0;\n" + walk + R"(
    const T x = ((const T*)a.in[0])[p], y = ((const T*)a.in[1])[q];
    if (y == 0) fault(a.fault, u, 0);
    ((T*)a.out[0])[u] = y == 0 ? T(0) : y == -1 ? T(0) - x : x / y;
  }
}
)");
  return g.launch("divide", grid_for(r.outputs[0].elements()));
}

}  // namespace

std::vector<Kernel> binary_cuda(const GpuCodeRef& code) {
  std::vector<Kernel> out;
  for (const char* op : {"add", "sub", "mul", "maximum", "minimum", "squared_difference"}) out.push_back(elementwise_kernel(code, op, {f32, f64, i32, i64, f16, bf16}));
  for (const char* op : {"div", "pow", "sigmoid_cross_entropy"}) out.push_back(elementwise_kernel(code, op, {f32, f64, f16, bf16}));
  out.push_back({.name = "nvrtc_divide", .op = "div", .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {i32, i64}); }, .prepare = [code](const KernelRequest& r) { return divided(r).prepare(*code); }});
  return out;
}

}  // namespace belfry
