#include <cmath>

#include <belfry/ops/cpu/column_sums_internal.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/extremes.h>

namespace belfry {

namespace {

using extremes::Max;
using extremes::Min;

/// The extents as (outer, reduced, inner), where the reduced axes lie together; axes of size 1 do not count.
struct Form {
  bool together = true;
  std::int64_t outer = 1, n = 1, inner = 1;
};

Form form_of(const KernelRequest& r) {
  const Extents& shape = r.inputs[0].shape;
  std::vector<int> axes = axes_from_front(r.attributes->integers("axes"), static_cast<int>(shape.size()));
  std::vector<bool> gone(shape.size(), axes.empty());
  for (int a : axes) gone[static_cast<std::size_t>(a)] = true;
  Form f;
  enum { before, inside, behind } where = before;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (gone[i]) {
      f.together = f.together && where != behind;
      where = inside;
      f.n *= shape[i];
    } else {
      if (where == inside) where = behind;
      (where == before ? f.outer : f.inner) *= shape[i];
    }
  }
  return f;
}

template <class T>
BELFRY_CLONES void add_rows(const T* x, std::int64_t rows, std::int64_t columns, double* sums) {
  for (std::int64_t i = 0; i < rows; ++i, x += columns)
    for (std::int64_t k = 0; k < columns; ++k) sums[k] += static_cast<double>(x[k]);
}

/// Element i goes to lane i mod 8.
template <class T>
BELFRY_CLONES double add_lanes(const T* x, std::int64_t n) {
  double lanes[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) lanes[k] += static_cast<double>(x[i + k]);
  for (; i < n; ++i) lanes[i % 8] += static_cast<double>(x[i]);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

struct Any {
  template <class T> static constexpr T kStart = false;
  bool operator()(bool a, bool b) const { return a | b; }
};
struct All {
  template <class T> static constexpr T kStart = true;
  bool operator()(bool a, bool b) const { return a & b; }
};

template <class T, class Fold>
BELFRY_CLONES void fold_rows(const T* x, std::int64_t rows, std::int64_t columns, T* y) {
  for (std::int64_t i = 0; i < rows; ++i, x += columns)
    for (std::int64_t k = 0; k < columns; ++k) y[k] = Fold{}(y[k], x[k]);
}

/// One element, its n terms `step` apart: the greatest, then the sum of exponentials below it.
template <class T>
T log_sum_exp(const T* x, std::int64_t n, std::int64_t step) {
  T top = Max::kStart<T>;
  for (std::int64_t i = 0; i < n; ++i) top = Max{}(top, x[i * step]);
  if (!std::isfinite(top)) top = 0;
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(std::exp(x[i * step] - top));
  return static_cast<T>(std::log(sum) + static_cast<double>(top));
}

/// A single column, without room for what its blocks add up to.
template <class T>
double add_column(const ColumnSums& sums, const T* x) {
  auto block = [&](std::int64_t b) { return add_lanes<T>(x + b * sums.block, std::min(sums.rows - b * sums.block, sums.block)); };
  double sum = 0;
  for (std::int64_t first = 0; first < sums.blocks; first += sums.group) {
    double part = block(first);
    for (std::int64_t b = first + 1; b < std::min(first + sums.group, sums.blocks); ++b) part += block(b);
    sum = first == 0 ? part : sum + part;
  }
  return sum;
}

template <class T>
void sum(const Form& f, int threads, const T* x, T* y, double* scratch) {
  ColumnSums sums(f.n, f.inner);
  auto one = [&](std::int64_t o, double* partials, int with) {
    const T* mine = x + o * f.n * f.inner;
    sums.run(partials, 1, with, [&](std::int64_t first, std::int64_t past, double* out) {
      if (f.inner == 1) out[0] = add_lanes<T>(mine + first, past - first);
      else add_rows<T>(mine + first * f.inner, past - first, f.inner, out);
    });
    for (std::int64_t k = 0; k < f.inner; ++k) y[o * f.inner + k] = static_cast<T>(partials[k]);
  };
  if (f.inner == 1 && (sums.blocks == 1 || f.outer > 1)) {
    for_ranges(f.outer, f.outer * f.n, threads, [&](std::int64_t first, std::int64_t past) {
      for (std::int64_t o = first; o < past; ++o) y[o] = static_cast<T>(add_column(sums, x + o * f.n));
    });
  } else {
    for (std::int64_t o = 0; o < f.outer; ++o) one(o, scratch, threads);
  }
}

Support supports(const KernelRequest& r) {
  Form f = form_of(r);
  if (!f.together) return refuse("the reduced axes do not lie together");
  Support s = takes(r, {f32, f64});
  s.scratch_bytes = ColumnSums(f.n, f.inner).scratch_bytes();
  return s;
}

Kernel sum_kernel() {
  return {.name = "block_reduce_sum", .op = "reduce_sum", .supports = supports, .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([f = form_of(r), threads = r.threads](const Arguments& a) { sum<T>(f, threads, a.in<T>(0), a.out<T>(0), reinterpret_cast<double*>(a.scratch)); });
            });
          }};
}

/// The mean is the sum divided in f64.
Kernel mean_kernel() {
  return {.name = "block_reduce_mean", .op = "reduce_mean", .supports = supports, .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([f = form_of(r), threads = r.threads, outputs = r.outputs[0].elements()](const Arguments& a) {
                T* y = a.out<T>(0);
                sum<T>(f, threads, a.in<T>(0), y, reinterpret_cast<double*>(a.scratch));
                for (std::int64_t i = 0; i < outputs; ++i) y[i] = static_cast<T>(static_cast<double>(y[i]) / static_cast<double>(f.n));
              });
            });
          }};
}

/// Folds that are exact in any order. `bools`: of bool alone, else of numbers.
template <class Fold, bool kBools = false>
Kernel fold_kernel(const char* name, const char* op) {
  return {.name = name, .op = op,
          .supports = [](const KernelRequest& r) {
            if (!form_of(r).together) return refuse("the reduced axes do not lie together");
            return kBools ? takes(r, {boolean}) : takes(r, {f32, f64, i32, i64});
          },
          .prepare = [](const KernelRequest& r) {
            auto make = [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([f = form_of(r), threads = r.threads](const Arguments& a) {
                for_ranges(f.outer, f.outer * f.n * f.inner, threads, [&](std::int64_t first, std::int64_t past) {
                  for (std::int64_t o = first; o < past; ++o) {
                    T* y = a.out<T>(0) + o * f.inner;
                    std::fill_n(y, f.inner, Fold::template kStart<T>);
                    fold_rows<T, Fold>(a.in<T>(0) + o * f.n * f.inner, f.n, f.inner, y);
                  }
                });
              });
            };
            if constexpr (kBools) return make.template operator()<bool>();
            else return visit_number(r.inputs[0].dtype, make);
          }};
}

Kernel logsumexp_kernel() {
  return {.name = "row_logsumexp", .op = "reduce_logsumexp",
          .supports = [](const KernelRequest& r) { return form_of(r).together ? takes(r, {f32, f64}) : refuse("the reduced axes do not lie together"); },
          .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([f = form_of(r), threads = r.threads](const Arguments& a) {
                constexpr std::int64_t kExp = 16;
                for_ranges(f.outer * f.inner, f.outer * f.inner * f.n * kExp, threads, [&](std::int64_t first, std::int64_t past) {
                  for (std::int64_t o = first; o < past; ++o) a.out<T>(0)[o] = log_sum_exp<T>(a.in<T>(0) + o / f.inner * f.n * f.inner + o % f.inner, f.n, f.inner);
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> reduce_cpu() {
  return {sum_kernel(), mean_kernel(), fold_kernel<Max>("block_reduce_max", "reduce_max"), fold_kernel<Min>("block_reduce_min", "reduce_min"),
          fold_kernel<Any, true>("block_reduce_any", "reduce_any"), fold_kernel<All, true>("block_reduce_all", "reduce_all"), logsumexp_kernel()};
}

}  // namespace belfry
