#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

constexpr std::int64_t kLanes = 64;

/// Up to kLanes running sums that lie side by side, `n` steps of `stride` elements.
template <class T, class Sum>
BELFRY_CLONES void run(const T* x, T* y, std::int64_t n, std::int64_t stride, std::int64_t lanes, bool exclusive) {
  Sum sums[kLanes] = {};
  for (std::int64_t j = 0; j < n; ++j, x += stride, y += stride)
    for (std::int64_t i = 0; i < lanes; ++i) {
      Sum before = sums[i];
      sums[i] += x[i];
      y[i] = static_cast<T>(exclusive ? before : sums[i]);
    }
}

}  // namespace

std::vector<Kernel> cumsum_cpu() {
  return {{.name = "running_sums", .op = "cumsum", .supports = takes_numbers(), .prepare = [](const KernelRequest& r) {
             AlongAxis a(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size())));
             bool exclusive = r.attributes->flag("exclusive"), reverse = r.attributes->flag("reverse");
             return visit_number(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
               return prepared([=, threads = r.threads](const Arguments& g) {
                 std::int64_t groups = (a.inner + kLanes - 1) / kLanes;
                 for_ranges(a.outer * groups, a.outer * a.n * a.inner, threads, [&](std::int64_t first, std::int64_t past) {
                   for (std::int64_t k = first; k < past; ++k) {
                     std::int64_t from = k % groups * kLanes, lanes = std::min(kLanes, a.inner - from);
                     std::size_t at = a.at(k / groups, reverse ? a.n - 1 : 0, from);
                     run<T, std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>>(g.in<T>(0) + at, g.out<T>(0) + at, a.n, reverse ? -a.inner : a.inner, lanes, exclusive);
                   }
                 });
               });
             });
           }}};
}

}  // namespace belfry
