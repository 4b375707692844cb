#include <algorithm>

#include <belfry/ops/cuda_kernels.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda/rows_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

std::vector<Kernel> scatter_add_cuda(const GpuCodeRef& code) {
  return {{.name = "nvrtc_add_rows", .op = "scatter_add",
           .supports = [](const KernelRequest& r) {
             Support s = takes_on_gpu(r, {i32, i64, u8}, 1).ok ? takes_on_gpu(r, {f32, f64}) : takes_on_gpu(r, {i32, i64, u8}, 1);
             if (std::max(r.inputs[0].shape[0], r.inputs[1].elements()) > kMostListed) return refuse("it has more rows or positions than are listed");
             s.scratch_bytes = listed_bytes(r.inputs[0].shape[0], r.inputs[1].elements());
             return s;
           },
           .prepare = [code](const KernelRequest& r) {
             return add_to_rows("scatter_add", r, 1, 2, 0, {1, r.inputs[0].shape[0], product(r.inputs[0].shape, 1, r.inputs[0].shape.size())}).prepare(*code);
           }}};
}

}  // namespace belfry
