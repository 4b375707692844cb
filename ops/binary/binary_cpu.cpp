#include <belfry/ops/binary/formulas.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/cpu/strided_internal.h>

namespace belfry {

namespace {

/// One run. Operands lie dense or stand still; y may be one of them.
template <class T, class Op>
[[gnu::target_clones("avx512f", "avx2", "default")]] void run(const T* a, std::int64_t step_a, const T* b, std::int64_t step_b, T* y, std::int64_t n) {
  if (step_a == 1 && step_b == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op{}(a[i], b[i]);
  } else if (step_a == 1 && step_b == 0) {
    const T still = *b;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op{}(a[i], still);
  } else if (step_a == 0 && step_b == 1) {
    const T still = *a;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op{}(still, b[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op{}(a[i * step_a], b[i * step_b]);
  }
}

/// Integer division can fail, and a kernel on several threads must not throw: it is left to the reference.
template <bool kIntegers, class F>
auto visit_operands(DType dtype, F f) {
  if constexpr (kIntegers) return visit_number(dtype, f);
  else return visit_float(dtype, f);
}

template <class Op, bool kIntegers = true>
Kernel kernel(const char* op) {
  return {.name = "simd_binary",
          .op = op,
          .supports = kIntegers ? takes_numbers() : takes_floats(),
          .prepare = [](const KernelRequest& r) {
            const Extents& out = r.outputs[0].shape;
            Walk walk(out, {stretched_strides(r.inputs[0].shape, out), stretched_strides(r.inputs[1].shape, out)});
            return visit_operands<kIntegers>(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([walk, threads = r.threads](const Arguments& x) {
                for_each_run<2>(walk, threads, [&](std::int64_t o, const auto& at, std::int64_t n) {
                  run<T, Op>(x.in<T>(0) + at[0], walk.inner[0], x.in<T>(1) + at[1], walk.inner[1], x.out<T>(0) + o, n);
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> binary_cpu() {
  using namespace binary_formulas;
  std::vector<Kernel> out;
  out.push_back(kernel<Add>("add"));
  out.push_back(kernel<Sub>("sub"));
  out.push_back(kernel<Mul>("mul"));
  out.push_back(kernel<Div, false>("div"));
  out.push_back(kernel<Max>("maximum"));
  out.push_back(kernel<Min>("minimum"));
  out.push_back(kernel<SquaredDifference>("squared_difference"));
  out.push_back(kernel<Pow, false>("pow"));
  return out;
}

}  // namespace belfry
