#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry {

namespace {

/// Tiles stay in the first cache while the operands pass; every element is added in input order.
constexpr std::int64_t kTile = 512;

template <class T>
BELFRY_CLONES void run(const std::vector<const std::byte*>& inputs, T* y, std::int64_t begin, std::int64_t end) {
  for (std::int64_t at = begin; at < end; at += kTile) {
    std::int64_t n = std::min(kTile, end - at);
    T sums[kTile];
    std::copy_n(reinterpret_cast<const T*>(inputs[0]) + at, n, sums);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      const T* x = reinterpret_cast<const T*>(inputs[k]) + at;
      for (std::int64_t i = 0; i < n; ++i) sums[i] = static_cast<T>(sums[i] + x[i]);
    }
    std::copy_n(sums, n, y + at);
  }
}

}  // namespace

std::vector<Kernel> add_n_cpu() {
  return {{.name = "simd_add_n", .op = "add_n", .supports = takes_numbers(), .prepare = [](const KernelRequest& r) {
             return visit_number(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
               return prepared([n = r.outputs[0].elements(), threads = r.threads, count = static_cast<std::int64_t>(r.inputs.size())](const Arguments& a) {
                 for_ranges(n, n * count, threads, [&](std::int64_t begin, std::int64_t end) { run<T>(a.inputs, a.out<T>(0), begin, end); }, kTile);
               });
             });
           }}};
}

}  // namespace belfry
