#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/unary/formulas.h>

namespace belfry {

namespace {

template <class T, class Op>
[[gnu::target_clones("avx512f", "avx2", "default")]] void run(const T* x, T* y, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(Op{}(x[i]));
}

template <class T>
[[gnu::target_clones("avx512f", "avx2", "default")]] void run_relu_gradient(const T* dy, const T* y, T* dx, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    T v = dy[i];
    dx[i] = y[i] > 0 ? v : T{0};
  }
}

/// `cost`: how many plain operations one element is worth, for the cut into threads.
template <class Op>
Kernel kernel(const char* op, std::int64_t cost = 1) {
  return {.name = "simd_unary", .op = op, .supports = takes_floats(), .prepare = [cost](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([cost, n = r.outputs[0].elements(), threads = r.threads](const Arguments& a) {
                for_ranges(n, n * cost, threads, [&](std::int64_t begin, std::int64_t end) { run<T, Op>(a.in<T>(0) + begin, a.out<T>(0) + begin, end - begin); }, 16);
              });
            });
          }};
}

Kernel relu_gradient_kernel() {
  return {.name = "simd_unary", .op = "relu_gradient", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([n = r.outputs[0].elements(), threads = r.threads](const Arguments& a) {
                for_ranges(n, n, threads, [&](std::int64_t begin, std::int64_t end) { run_relu_gradient<T>(a.in<T>(0) + begin, a.in<T>(1) + begin, a.out<T>(0) + begin, end - begin); }, 16);
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> unary_cpu() {
  using namespace unary_formulas;
  constexpr std::int64_t kTranscendental = 16;
  std::vector<Kernel> out;
  out.push_back(kernel<Neg>("neg"));
  out.push_back(kernel<Exp>("exp", kTranscendental));
  out.push_back(kernel<Log>("log", kTranscendental));
  out.push_back(kernel<Sqrt>("sqrt", 4));
  out.push_back(kernel<Square>("square"));
  out.push_back(kernel<Relu>("relu"));
  out.push_back(kernel<Tanh>("tanh", kTranscendental));
  out.push_back(kernel<Sigmoid>("sigmoid", kTranscendental));
  out.push_back(relu_gradient_kernel());
  return out;
}

}  // namespace belfry
