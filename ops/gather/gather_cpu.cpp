#include <cstring>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

template <class T>
BELFRY_CLONES void add_row(const T* x, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

Kernel gather_kernel() {
  return {.name = "copy_rows", .op = "gather", .supports = [](const KernelRequest& r) { return takes_indices(r, 1); }, .prepare = [](const KernelRequest& r) {
            AlongAxis table(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size())));
            std::int64_t n = r.inputs[1].elements(), bytes = table.inner * static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
            return visit_index(r.inputs[1].dtype, [&]<class I>() -> std::unique_ptr<Prepared> {
              return prepared([=, threads = r.threads](const Arguments& a) {
                const I* indices = a.in<I>(1);
                check_rows("gather", indices, n, table.n);
                for_ranges(table.outer * n, table.outer * n * bytes / 4, threads, [&](std::int64_t first, std::int64_t past) {
                  for (std::int64_t i = first; i < past; ++i)
                    std::memcpy(a.outputs[0] + i * bytes, a.inputs[0] + (i / n * table.n + indices[i % n]) * bytes, static_cast<std::size_t>(bytes));
                });
              });
            });
          }};
}

/// Rows are added in the order of the indices; what lies before the axis is dealt to the threads.
Kernel gradient_kernel() {
  return {.name = "add_rows", .op = "gather_gradient",
          .supports = [](const KernelRequest& r) { return takes_indices(r, 0).ok ? takes(r, {f32, f64}, 1) : takes_indices(r, 0); },
          .prepare = [](const KernelRequest& r) {
            AlongAxis table(r.outputs[0].shape, static_cast<int>(r.attributes->integer("axis")));
            std::int64_t n = r.inputs[0].elements(), all = r.outputs[0].elements();
            return visit_index(r.inputs[0].dtype, [&]<class I>() {
              return visit_float(r.inputs[1].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
                return prepared([=, threads = r.threads](const Arguments& a) {
                  const I* indices = a.in<I>(0);
                  check_rows("gather", indices, n, table.n);
                  std::fill_n(a.out<T>(0), all, T{0});
                  for_ranges(table.outer, table.outer * n * table.inner, threads, [&](std::int64_t first, std::int64_t past) {
                    for (std::int64_t o = first; o < past; ++o)
                      for (std::int64_t i = 0; i < n; ++i)
                        add_row<T>(a.in<T>(1) + (o * n + i) * table.inner, a.out<T>(0) + (o * table.n + indices[i]) * table.inner, table.inner);
                  });
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> gather_cpu() { return {gather_kernel(), gradient_kernel()}; }

}  // namespace belfry
