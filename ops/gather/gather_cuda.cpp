#include <algorithm>

#include <belfry/ops/cuda_kernels.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda/rows_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {
namespace {

/// An index that is no row gives zeros, and a fault that the host sees when the step is over.
Kernel gather(const GpuCodeRef& code) {
  return {.name = "nvrtc_gather", .op = "gather", .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {i32, i64, u8}, 1); }, .prepare = [code](const KernelRequest& r) {
            AlongAxis table(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size())));
            auto size = static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
            std::int64_t n = r.inputs[1].elements(), bytes = table.inner * size, word = 16;
            while (bytes % word != 0) word /= 2;
            Generated g(r);
            g.type("K", r.inputs[1].dtype).type("Wide", word_text(word)).type("Narrow", word_text(size));
            g.number("n", n).number("rows", table.n).number("bytes", bytes).number("lines", table.outer * n);
            g.faults(outside_table("gather", table.n)).body(R"(
template <class W> void move(const Args& a) {
  const i64 width = a.bytes / sizeof(W);
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.lines * width; u += (i64)gridDim.x * blockDim.x) {
    const i64 line = u / width, k = (i64)((const K*)a.in[1])[line % a.n];
    if (k < 0 || k >= a.rows) fault(a.fault, line % a.n, k);
    ((W*)a.out[0])[u] = k >= 0 && k < a.rows ? ((const W*)a.in[0])[(line / a.n * a.rows + k) * width + u % width] : W{};
  }
}
KERNEL void wide(const Args a) { move<Wide>(a); }
KERNEL void narrow(const Args a) { move<Narrow>(a); }
)");
            return g.launch("wide", grid_for(table.outer * n * bytes / word), {0, 2}, "narrow", grid_for(table.outer * n * table.inner)).prepare(*code);
          }};
}

Kernel gradient(const GpuCodeRef& code) {
  return {.name = "nvrtc_add_rows", .op = "gather_gradient",
          .supports = [](const KernelRequest& r) {
            Support s = takes_on_gpu(r, {i32, i64, u8}, 0).ok ? takes_on_gpu(r, {f32, f64}, 1) : takes_on_gpu(r, {i32, i64, u8}, 0);
            AlongAxis table(r.outputs[0].shape, static_cast<int>(r.attributes->integer("axis")));
            if (std::max(table.n, r.inputs[0].elements()) > kMostListed) return refuse("it has more rows or positions than are listed");
            s.scratch_bytes = listed_bytes(table.n, r.inputs[0].elements());
            return s;
          },
          .prepare = [code](const KernelRequest& r) {
            AlongAxis table(r.outputs[0].shape, static_cast<int>(r.attributes->integer("axis")));
            return add_to_rows("gather", r, 0, 1, -1, {table.outer, table.n, table.inner}).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> gather_cuda(const GpuCodeRef& code) { return {gather(code), gradient(code)}; }

}  // namespace belfry
