#include <cstring>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

/// Each thread walks over all indices and adds to its own rows, so a row's terms come in the order of the indices.
std::vector<Kernel> scatter_add_cpu() {
  return {{.name = "add_to_rows", .op = "scatter_add",
           .supports = [](const KernelRequest& r) { return takes_indices(r, 1).ok ? takes(r, {f32, f64}) : takes_indices(r, 1); },
           .prepare = [](const KernelRequest& r) {
             std::int64_t rows = r.inputs[0].shape[0], row = product(r.inputs[0].shape, 1, r.inputs[0].shape.size()), n = r.inputs[1].elements();
             return visit_index(r.inputs[1].dtype, [&]<class I>() {
               return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
                 return prepared([=, threads = r.threads](const Arguments& a) {
                   const I* indices = a.in<I>(1);
                   check_rows("scatter_add", indices, n, rows);
                   bool in_place = a.inputs[0] == a.outputs[0];
                   for_ranges(rows, (in_place ? 0 : rows * row) + n * row, threads, [&](std::int64_t first, std::int64_t past) {
                     if (!in_place && row > 0) std::memcpy(a.out<T>(0) + first * row, a.in<T>(0) + first * row, static_cast<std::size_t>((past - first) * row) * sizeof(T));
                     for (std::int64_t i = 0; i < n; ++i) {
                       auto k = static_cast<std::int64_t>(indices[i]);
                       if (k < first || k >= past) continue;
                       T* to = a.out<T>(0) + k * row;
                       const T* from = a.in<T>(2) + i * row;
                       for (std::int64_t j = 0; j < row; ++j) to[j] += from[j];
                     }
                   });
                 });
               });
             });
           }}};
}

}  // namespace belfry
