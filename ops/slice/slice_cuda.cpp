#include <belfry/ops/cuda_kernels.h>

#include <string>
#include <utility>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/slice/box_internal.h>

namespace belfry {
namespace {

Support supports(const KernelRequest& r, bool gradient) {
  std::string objection = box_objection(*r.attributes, r.inputs[0], r.outputs[0], r.output_types[0], r.share, gradient);
  return objection.empty() ? Support{.in_place = false} : refuse(std::move(objection));
}

Kernel kernel(const GpuCodeRef& code, const char* op, bool gradient) {
  return {.name = "nvrtc_slice", .op = op, .supports = [=](const KernelRequest& r) { return supports(r, gradient); }, .prepare = [=](const KernelRequest& r) {
            Box box = box_of(*r.attributes, r.inputs[0], r.outputs[0], r.output_types[0], r.share, gradient);
            if (gradient) std::swap(box.part, box.whole), std::swap(box.part_step, box.whole_step);
            std::vector<std::unique_ptr<Prepared>> parts;
            if (gradient) {
              Generated zero(r);
              zero.type("T", r.outputs[0].dtype).number("n", r.outputs[0].elements()).body(R"(
KERNEL void clear(const Args a) {
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.n; u += (i64)gridDim.x * blockDim.x) ((T*)a.out[0])[u] = T{};
}
)");
              parts.push_back(zero.launch("clear", grid_for(r.outputs[0].elements())).prepare(*code));
            }
            DType t = r.inputs[0].dtype;
            parts.push_back(elementwise({{{t, box.whole_step, box.whole}}, {}, box.counts, {t, box.part_step, box.part}}).prepare(*code));
            return in_sequence(std::move(parts));
          }};
}

}  // namespace

std::vector<Kernel> slice_cuda(const GpuCodeRef& code) { return {kernel(code, "slice", false), kernel(code, "slice_gradient", true)}; }

}  // namespace belfry
