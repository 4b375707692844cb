#include <algorithm>
#include <numeric>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>
#include <belfry/ops/top_k/formulas.h>

namespace belfry {

namespace {

using namespace top_k_formulas;

/// A line's positions are partly sorted in the scratch of the part; equal values by position.
Kernel top_k_kernel() {
  auto line = [](const KernelRequest& r) { return AlongAxis(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size()))); };
  return {.name = "partial_sort", .op = "top_k",
          .supports = [=](const KernelRequest& r) {
            if (!takes_numbers()(r).ok) return takes_numbers()(r);
            std::int64_t n = line(r).n;
            if (n < r.attributes->integer("k") || n > std::numeric_limits<std::int32_t>::max()) return refuse(fmt::format("the axis has {} elements", n));
            return accept(n * r.threads * static_cast<std::int64_t>(sizeof(std::int32_t)));
          },
          .prepare = [=](const KernelRequest& r) {
            AlongAxis from = line(r);
            std::int64_t k = r.attributes->integer("k");
            bool largest = r.attributes->flag("largest");
            return visit_number(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, threads = r.threads](const Arguments& a) {
                for_parts(from.outer * from.inner, from.outer * from.inner * from.n * 4, threads, [&](std::int64_t part, std::int64_t first, std::int64_t past) {
                  std::int32_t* order = reinterpret_cast<std::int32_t*>(a.scratch) + part * from.n;
                  for (std::int64_t oi = first; oi < past; ++oi) {
                    std::int64_t o = oi / from.inner, i = oi % from.inner;
                    const T* x = a.in<T>(0) + from.at(o, 0, i);
                    std::iota(order, order + from.n, 0);
                    std::partial_sort(order, order + k, order + from.n, [&](std::int32_t p, std::int32_t q) {
                      T u = x[p * from.inner], v = x[q * from.inner];
                      return before(u, v, largest) || (p < q && !before(v, u, largest));
                    });
                    for (std::int64_t j = 0; j < k; ++j) {
                      std::int64_t to = (o * k + j) * from.inner + i;
                      a.out<T>(0)[to] = x[order[j] * from.inner];
                      a.out<std::int32_t>(1)[to] = order[j];
                    }
                  }
                });
              });
            });
          }};
}

Kernel in_top_k_kernel() {
  return {.name = "count_above", .op = "in_top_k",
          .supports = [](const KernelRequest& r) { return takes_indices(r, 0).ok ? takes(r, {f32, f64}, 1) : takes_indices(r, 0); },
          .prepare = [](const KernelRequest& r) {
            std::int64_t rows = r.inputs[0].elements(), classes = r.inputs[1].shape.back(), k = r.attributes->integer("k");
            return visit_index(r.inputs[0].dtype, [&]<class I>() {
              return visit_float(r.inputs[1].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
                return prepared([=, threads = r.threads](const Arguments& a) {
                  for_ranges(rows, rows * classes, threads, [&](std::int64_t first, std::int64_t past) {
                    for (std::int64_t i = first; i < past; ++i) a.out<bool>(0)[i] = in_top(a.in<T>(1) + i * classes, classes, static_cast<std::int64_t>(a.in<I>(0)[i]), k);
                  });
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> top_k_cpu() { return {top_k_kernel(), in_top_k_kernel()}; }

}  // namespace belfry
