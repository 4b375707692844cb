#include <cstring>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

std::vector<Kernel> one_hot_cpu() {
  return {{.name = "set_one_hot", .op = "one_hot", .supports = [](const KernelRequest& r) { return takes_indices(r, 0); }, .prepare = [](const KernelRequest& r) {
             return visit_index(r.inputs[0].dtype, [&]<class I>() {
               return visit_dtype(r.outputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
                 const Extents& shape = r.outputs[0].shape;
                 AlongAxis along(shape, from_front(r.attributes->integer("axis"), static_cast<int>(shape.size())));
                 auto on = static_cast<T>(r.attributes->real("on")), off = static_cast<T>(r.attributes->real("off"));
                 return prepared([=, n = r.inputs[0].elements()](const Arguments& a) {
                   T* y = a.out<T>(0);
                   std::fill_n(y, n * along.n, off);
                   for (std::int64_t i = 0; i < n; ++i)
                     if (auto k = static_cast<std::int64_t>(a.in<I>(0)[i]); k >= 0 && k < along.n) y[along.at(i / along.inner, k, i % along.inner)] = on;
                 });
               });
             });
           }}};
}

}  // namespace belfry
