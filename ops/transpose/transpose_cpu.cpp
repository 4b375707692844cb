#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/cpu/strided_internal.h>

namespace belfry {

namespace {

template <class T>
void gather_run(const T* x, std::int64_t step, T* y, std::int64_t n) {
  if (step == 1) std::copy_n(x, n, y);
  else
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i * step];
}

}  // namespace

std::vector<Kernel> transpose_cpu() {
  return {{.name = "strided_transpose", .op = "transpose", .supports = takes_any(), .prepare = [](const KernelRequest& r) {
             const Integers& order = r.attributes->integers("order");
             const Extents& from = r.inputs[0].shape;
             int rank = static_cast<int>(from.size());
             Extents dense(from.size(), 1), strides;
             for (std::size_t i = from.size(); i-- > 1;) dense[i - 1] = dense[i] * from[i];
             for (std::int64_t axis : order) strides.push_back(dense[static_cast<std::size_t>(from_front(axis, rank))]);
             Walk walk(r.outputs[0].shape, {strides});
             return visit_stored(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
               return prepared([walk, threads = r.threads](const Arguments& a) {
                 for_each_run<1>(walk, threads, [&](std::int64_t o, const auto& at, std::int64_t n) { gather_run(a.in<T>(0) + at[0], walk.inner[0], a.out<T>(0) + o, n); });
               });
             });
           }}};
}

}  // namespace belfry
