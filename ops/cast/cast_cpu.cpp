#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry {

namespace {

template <class From, class To>
BELFRY_CLONES void run(const From* x, To* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<To>(x[i]);
}

}  // namespace

std::vector<Kernel> cast_cpu() {
  return {{.name = "simd_cast", .op = "cast", .supports = takes_any(), .prepare = [](const KernelRequest& r) {
             return visit_dtype(r.inputs[0].dtype, [&]<class From>() {
               return visit_dtype(r.outputs[0].dtype, [&]<class To>() -> std::unique_ptr<Prepared> {
                 return prepared([n = r.outputs[0].elements(), threads = r.threads](const Arguments& a) {
                   for_ranges(n, n, threads, [&](std::int64_t begin, std::int64_t end) { run<From, To>(a.in<From>(0) + begin, a.out<To>(0) + begin, end - begin); }, 16);
                 });
               });
             });
           }}};
}

}  // namespace belfry
