#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

Kernel kernel(const char* name, const char* op, bool smallest) {
  return {.name = name, .op = op, .supports = takes_numbers(), .prepare = [=](const KernelRequest& r) {
            AlongAxis along(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size())));
            return visit_number(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([along, smallest, last = r.attributes->flag("last"), threads = r.threads](const Arguments& a) {
                for_ranges(along.outer, along.outer * along.n * along.inner, threads, [&](std::int64_t first, std::int64_t past) {
                  const T* x = a.in<T>(0);
                  for (std::int64_t o = first; o < past; ++o)
                    for (std::int64_t i = 0; i < along.inner; ++i) {
                      std::int64_t best = 0;
                      T top = x[along.at(o, 0, i)];
                      for (std::int64_t k = 1; k < along.n; ++k) {
                        T p = x[along.at(o, k, i)];
                        if ((smallest ? p < top : p > top) || (last && p == top)) best = k, top = p;
                      }
                      a.out<std::int32_t>(0)[o * along.inner + i] = static_cast<std::int32_t>(best);
                    }
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> argmax_cpu() { return {kernel("row_argmax", "argmax", false), kernel("row_argmin", "argmin", true)}; }

}  // namespace belfry
