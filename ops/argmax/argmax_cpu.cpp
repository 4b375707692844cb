#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

std::vector<Kernel> argmax_cpu() {
  return {{.name = "row_argmax", .op = "argmax", .supports = takes_numbers(), .prepare = [](const KernelRequest& r) {
             AlongAxis along(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size())));
             return visit_number(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
               return prepared([along, threads = r.threads](const Arguments& a) {
                 for_ranges(along.outer, along.outer * along.n * along.inner, threads, [&](std::int64_t first, std::int64_t past) {
                   for (std::int64_t o = first; o < past; ++o)
                     for (std::int64_t i = 0; i < along.inner; ++i) {
                       const T* x = a.in<T>(0);
                       std::int64_t best = 0;
                       for (std::int64_t k = 1; k < along.n; ++k)
                         if (x[along.at(o, k, i)] > x[along.at(o, best, i)]) best = k;
                       a.out<std::int32_t>(0)[o * along.inner + i] = static_cast<std::int32_t>(best);
                     }
                 });
               });
             });
           }}};
}

}  // namespace belfry
