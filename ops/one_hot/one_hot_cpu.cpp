#include <cstring>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry {

std::vector<Kernel> one_hot_cpu() {
  return {{.name = "set_one_hot", .op = "one_hot", .supports = [](const KernelRequest& r) { return takes_indices(r, 0); }, .prepare = [](const KernelRequest& r) {
             return visit_index(r.inputs[0].dtype, [&]<class I>() {
               return visit_dtype(r.outputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
                 return prepared([n = r.inputs[0].elements(), depth = r.outputs[0].shape.back()](const Arguments& a) {
                   T* y = a.out<T>(0);
                   std::fill_n(y, n * depth, T{0});
                   for (std::int64_t i = 0; i < n; ++i)
                     if (auto k = static_cast<std::int64_t>(a.in<I>(0)[i]); k >= 0 && k < depth) y[i * depth + k] = T{1};
                 });
               });
             });
           }}};
}

}  // namespace belfry
