#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/elementwise_internal.h>

#include <fmt/format.h>

namespace belfry {

/// Halves are converted from and to f32 alone.
std::vector<Kernel> cast_cuda(const GpuCodeRef& code) {
  return {{.name = "nvrtc_elementwise", .op = "cast",
           .supports = [](const KernelRequest& r) {
             DType from = r.inputs[0].dtype, to = r.outputs[0].dtype;
             if ((is_half(from) && to != f32) || (is_half(to) && from != f32)) return refuse(fmt::format("{} to {}", name_of(from), name_of(to)));
             return Support{};
           },
           .prepare = [code](const KernelRequest& r) {
             DType to = r.outputs[0].dtype;
             return elementwise({{stretched(r.inputs[0], r.outputs[0].shape)}, {{to, "convert<T>(x)", {{"x", 0}}}}, r.outputs[0].shape}).prepare(*code);
           }}};
}

}  // namespace belfry
