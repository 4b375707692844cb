#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/elementwise_internal.h>

namespace belfry {

/// A copy per input, into its place.
std::vector<Kernel> concat_cuda(const GpuCodeRef& code) {
  return {{.name = "nvrtc_copy", .op = "concat", .supports = [](const KernelRequest&) { return Support{.in_place = false}; }, .prepare = [code](const KernelRequest& r) {
             const LocalType& y = r.outputs[0];
             auto axis = static_cast<std::size_t>(from_front(r.attributes->integer("axis"), static_cast<int>(y.shape.size())));
             Lying to = stretched(y, y.shape);
             for (std::size_t i = y.shape.size(); i-- > 0;) to.strides[i] = i + 1 == y.shape.size() ? 1 : to.strides[i + 1] * y.shape[i + 1];
             std::vector<std::unique_ptr<Prepared>> parts;
             for (std::size_t i = 0; i < r.inputs.size(); ++i) {
               const LocalType& x = r.inputs[i];
               parts.push_back(of_input(elementwise({{stretched(x, x.shape)}, {}, x.shape, to}).prepare(*code), i));
               to.first += x.shape[axis] * to.strides[axis];
             }
             return in_sequence(std::move(parts));
           }}};
}

}  // namespace belfry
