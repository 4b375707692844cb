#include <cstring>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>
#include <belfry/ops/take_along_axis/formulas.h>

namespace belfry {

namespace {

int axis_of(const KernelRequest& r, std::size_t rank) { return from_front(r.attributes->integer("axis"), static_cast<int>(rank)); }

template <class I>
void check(const I* indices, std::int64_t count, std::int64_t n) {
  for (std::int64_t i = 0; i < count; ++i) check_index(static_cast<std::int64_t>(indices[i]), i, n);
}

/// Element j of each line, for all lines beside it.
Kernel take_kernel() {
  return {.name = "take_elements", .op = "take_along_axis", .supports = [](const KernelRequest& r) { return takes_indices(r, 1); }, .prepare = [](const KernelRequest& r) {
            AlongAxis from(r.inputs[0].shape, axis_of(r, r.inputs[0].shape.size())), taken(r.inputs[1].shape, axis_of(r, r.inputs[0].shape.size()));
            std::int64_t count = r.inputs[1].elements();
            std::size_t bytes = size_of(r.inputs[0].dtype);
            return visit_index(r.inputs[1].dtype, [&]<class I>() -> std::unique_ptr<Prepared> {
              return prepared([=, threads = r.threads](const Arguments& a) {
                const I* indices = a.in<I>(1);
                check(indices, count, from.n);
                for_ranges(taken.outer * taken.n, count, threads, [&](std::int64_t first, std::int64_t past) {
                  for (std::int64_t oj = first; oj < past; ++oj)
                    for (std::int64_t i = 0; i < taken.inner; ++i) {
                      std::size_t to = static_cast<std::size_t>(oj * taken.inner + i);
                      std::memcpy(a.outputs[0] + to * bytes, a.inputs[0] + from.at(oj / taken.n, static_cast<std::int64_t>(indices[to]), i) * bytes, bytes);
                    }
                });
              });
            });
          }};
}

/// Elements are added in the order of the indices along a line; what lies before the axis is dealt to the threads.
Kernel gradient_kernel() {
  return {.name = "add_elements", .op = "take_along_axis_gradient",
          .supports = [](const KernelRequest& r) { return takes_indices(r, 0).ok ? takes(r, {f32, f64}, 1) : takes_indices(r, 0); },
          .prepare = [](const KernelRequest& r) {
            AlongAxis to(r.outputs[0].shape, axis_of(r, r.outputs[0].shape.size())), taken(r.inputs[0].shape, axis_of(r, r.outputs[0].shape.size()));
            std::int64_t count = r.inputs[0].elements();
            return visit_index(r.inputs[0].dtype, [&]<class I>() {
              return visit_float(r.inputs[1].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
                return prepared([=, threads = r.threads](const Arguments& a) {
                  const I* indices = a.in<I>(0);
                  check(indices, count, to.n);
                  for_ranges(to.outer, to.outer * to.n * to.inner, threads, [&](std::int64_t first, std::int64_t past) {
                    std::fill_n(a.out<T>(0) + first * to.n * to.inner, (past - first) * to.n * to.inner, T{0});
                    for (std::int64_t o = first; o < past; ++o)
                      for (std::int64_t j = 0; j < taken.n; ++j)
                        for (std::int64_t i = 0; i < taken.inner; ++i) {
                          std::size_t at = taken.at(o, j, i);
                          a.out<T>(0)[to.at(o, static_cast<std::int64_t>(indices[at]), i)] += a.in<T>(1)[at];
                        }
                  });
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> take_along_axis_cpu() { return {take_kernel(), gradient_kernel()}; }

}  // namespace belfry
