#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/generated_internal.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

std::vector<Kernel> one_hot_cuda(const GpuCodeRef& code) {
  return {{.name = "nvrtc_one_hot", .op = "one_hot", .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {i32, i64, u8}); }, .prepare = [code](const KernelRequest& r) {
             const Extents& shape = r.outputs[0].shape;
             AlongAxis along(shape, from_front(r.attributes->integer("axis"), static_cast<int>(shape.size())));
             Generated g(r);
             g.type("K", r.inputs[0].dtype).type("T", r.outputs[0].dtype).number("n", r.outputs[0].elements()).number("depth", along.n).number("inner", along.inner);
             g.real("on", r.attributes->real("on")).real("off", r.attributes->real("off")).body(R"(
KERNEL void one_hot(const Args a) {
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.n; u += (i64)gridDim.x * blockDim.x) {
    i64 line = u / a.inner, k = line % a.depth, i = line / a.depth * a.inner + u % a.inner;
    ((T*)a.out[0])[u] = (i64)((const K*)a.in[0])[i] == k ? (T)a.on : (T)a.off;
  }
}
)");
             return g.launch("one_hot", grid_for(r.outputs[0].elements())).prepare(*code);
           }}};
}

}  // namespace belfry
