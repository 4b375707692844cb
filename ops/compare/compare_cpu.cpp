#include <belfry/ops/compare/formulas.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/cpu/strided_internal.h>

namespace belfry {

namespace {

using namespace compare_formulas;

template <class T, class Op>
BELFRY_CLONES void run(const void* left, std::int64_t step_a, const void* right, std::int64_t step_b, bool* y, std::int64_t n) {
  auto a = static_cast<const T*>(left), b = static_cast<const T*>(right);
  if (step_a == 1 && step_b == 1) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op{}(a[i], b[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op{}(a[i * step_a], b[i * step_b]);
  }
}

using Run = void (*)(const void*, std::int64_t, const void*, std::int64_t, bool*, std::int64_t);

template <class Op>
Run compared(DType dtype) {
  return visit_dtype(dtype, []<class T>() -> Run { return run<T, Op>; });
}

template <class Op>
Run logical(DType) {
  return run<bool, Op>;
}

/// `swapped`: a > b is b < a, for NaN too.
Kernel kernel(const char* op, Run (*run_for)(DType), bool swapped = false) {
  return {.name = "simd_compare",
          .op = op,
          .supports = takes_any(),
          .prepare = [run_for, swapped](const KernelRequest& r) {
            const Extents& out = r.outputs[0].shape;
            const std::size_t left = swapped, right = !swapped;
            Walk walk(out, {stretched_strides(r.inputs[left].shape, out), stretched_strides(r.inputs[right].shape, out)});
            auto size = static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
            return prepared([walk, left, right, size, run = run_for(r.inputs[0].dtype), threads = r.threads](const Arguments& x) {
              for_each_run<2>(walk, threads, [&](std::int64_t o, const auto& at, std::int64_t n) {
                run(x.inputs[left] + at[0] * size, walk.inner[0], x.inputs[right] + at[1] * size, walk.inner[1], x.out<bool>(0) + o, n);
              });
            });
          }};
}

Kernel not_kernel() {
  return {.name = "simd_compare", .op = "logical_not", .supports = takes_any(), .prepare = [](const KernelRequest& r) {
            return prepared([n = r.outputs[0].elements(), threads = r.threads](const Arguments& a) {
              for_ranges(n, n, threads, [&](std::int64_t begin, std::int64_t end) {
                const bool* x = a.in<bool>(0);
                for (std::int64_t i = begin; i < end; ++i) a.out<bool>(0)[i] = !x[i];
              }, 16);
            });
          }};
}

template <class T>
BELFRY_CLONES void choose(const bool* c, std::int64_t step_c, const T* a, std::int64_t step_a, const T* b, std::int64_t step_b, T* y, std::int64_t n) {
  if (step_c == 1 && step_a == 1 && step_b == 0) {
    const T still = *b;
    BELFRY_IVDEP
    for (std::int64_t i = 0; i < n; ++i) {
      T v = a[i];
      y[i] = c[i] ? v : still;
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = c[i * step_c] ? a[i * step_a] : b[i * step_b];
  }
}

Kernel where_kernel() {
  return {.name = "simd_where", .op = "where", .supports = takes_any(), .prepare = [](const KernelRequest& r) {
            const Extents& out = r.outputs[0].shape;
            Walk walk(out, {stretched_strides(r.inputs[0].shape, out), stretched_strides(r.inputs[1].shape, out), stretched_strides(r.inputs[2].shape, out)});
            return visit_dtype(r.inputs[1].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([walk, threads = r.threads](const Arguments& x) {
                for_each_run<3>(walk, threads, [&](std::int64_t o, const auto& at, std::int64_t n) {
                  choose<T>(x.in<bool>(0) + at[0], walk.inner[0], x.in<T>(1) + at[1], walk.inner[1], x.in<T>(2) + at[2], walk.inner[2], x.out<T>(0) + o, n);
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> compare_cpu() {
  return {kernel("equal", compared<Equal>),           kernel("not_equal", compared<NotEqual>),
          kernel("less", compared<Less>),             kernel("less_equal", compared<LessEqual>),
          kernel("greater", compared<Less>, true),    kernel("greater_equal", compared<LessEqual>, true),
          kernel("logical_and", logical<And>),       kernel("logical_or", logical<Or>),
          not_kernel(),               where_kernel()};
}

}  // namespace belfry
