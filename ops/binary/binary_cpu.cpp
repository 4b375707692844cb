#include <belfry/ops/binary/formulas.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/cpu/strided_internal.h>

namespace belfry {

namespace {

/// One run. Operands lie dense or stand still; y may be one of them.
template <class T, class Op>
BELFRY_CLONES void run(const void* left, std::int64_t step_a, const void* right, std::int64_t step_b, void* out, std::int64_t n) {
  auto a = static_cast<const T*>(left), b = static_cast<const T*>(right);
  auto y = static_cast<T*>(out);
  if (step_a == 1 && step_b == 1) {
    BELFRY_IVDEP
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op{}(a[i], b[i]);
  } else if (step_a == 1 && step_b == 0) {
    const T still = *b;
    BELFRY_IVDEP
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op{}(a[i], still);
  } else if (step_a == 0 && step_b == 1) {
    const T still = *a;
    BELFRY_IVDEP
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op{}(still, b[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = Op{}(a[i * step_a], b[i * step_b]);
  }
}

using Run = void (*)(const void*, std::int64_t, const void*, std::int64_t, void*, std::int64_t);

template <class Op>
Run of_number(DType dtype) {
  return visit_number(dtype, []<class T>() -> Run { return run<T, Op>; });
}

template <class Op>
Run of_float(DType dtype) {
  return visit_float(dtype, []<class T>() -> Run { return run<T, Op>; });
}

Kernel kernel(const char* op, std::function<Support(const KernelRequest&)> supports, Run (*run_for)(DType)) {
  return {.name = "simd_binary",
          .op = op,
          .supports = std::move(supports),
          .prepare = [run_for](const KernelRequest& r) {
            const Extents& out = r.outputs[0].shape;
            Walk walk(out, {stretched_strides(r.inputs[0].shape, out), stretched_strides(r.inputs[1].shape, out)});
            auto size = static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
            return prepared([walk, size, run = run_for(r.inputs[0].dtype), threads = r.threads](const Arguments& x) {
              for_each_run<2>(walk, threads, [&](std::int64_t o, const auto& at, std::int64_t n) {
                run(x.inputs[0] + at[0] * size, walk.inner[0], x.inputs[1] + at[1] * size, walk.inner[1], x.outputs[0] + o * size, n);
              });
            });
          }};
}

template <class Op>
Kernel kernel(const char* op) {
  return kernel(op, takes_numbers(), of_number<Op>);
}

/// Integer division can fail, and a kernel on several threads must not throw: it is left to the reference.
template <class Op>
Kernel float_kernel(const char* op) {
  return kernel(op, takes_floats(), of_float<Op>);
}

}  // namespace

std::vector<Kernel> binary_cpu() {
  using namespace binary_formulas;
  std::vector<Kernel> out;
  out.push_back(kernel<Add>("add"));
  out.push_back(kernel<Sub>("sub"));
  out.push_back(kernel<Mul>("mul"));
  out.push_back(float_kernel<Div>("div"));
  out.push_back(kernel<Max>("maximum"));
  out.push_back(kernel<Min>("minimum"));
  out.push_back(kernel<SquaredDifference>("squared_difference"));
  out.push_back(float_kernel<Pow>("pow"));
  out.push_back(float_kernel<SigmoidCrossEntropy>("sigmoid_cross_entropy"));
  return out;
}

}  // namespace belfry
