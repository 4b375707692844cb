#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/unary/formulas.h>

namespace belfry {

namespace {

using namespace unary_formulas;

template <class T, class Op>
BELFRY_CLONES void run(Op op, const T* x, T* y, std::int64_t n) {
  BELFRY_IVDEP
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(op(x[i]));
}

template <class T, class Op>
BELFRY_CLONES void run_gradient(Op op, const T* dy, const T* v, T* dx, std::int64_t n) {
  BELFRY_IVDEP
  for (std::int64_t i = 0; i < n; ++i) {
    T d = dy[i];
    dx[i] = op(d, v[i]);
  }
}

/// `cost`: how many plain operations one element is worth, for the cut into threads.
template <class Op>
Kernel kernel(const char* op, std::int64_t cost = 1) {
  return {.name = "simd_unary", .op = op, .supports = takes_floats(), .prepare = [cost](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([cost, apply = formula_of<Op>(*r.attributes), n = r.outputs[0].elements(), threads = r.threads](const Arguments& a) {
                for_ranges(n, n * cost, threads, [&](std::int64_t begin, std::int64_t end) { run<T, Op>(apply, a.in<T>(0) + begin, a.out<T>(0) + begin, end - begin); }, 16);
              });
            });
          }};
}

template <class Op>
Kernel gradient_kernel(const char* op, std::int64_t cost = 1) {
  return {.name = "simd_unary", .op = op, .supports = takes_floats(), .prepare = [cost](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([cost, apply = formula_of<Op>(*r.attributes), n = r.outputs[0].elements(), threads = r.threads](const Arguments& a) {
                for_ranges(n, n * cost, threads, [&](std::int64_t begin, std::int64_t end) { run_gradient<T, Op>(apply, a.in<T>(0) + begin, a.in<T>(1) + begin, a.out<T>(0) + begin, end - begin); }, 16);
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> unary_cpu() {
  constexpr std::int64_t kRoot = 4, kTranscendental = 16;
  std::vector<Kernel> out;
  out.push_back(kernel<Neg>("neg"));
  out.push_back(kernel<Abs>("abs"));
  out.push_back(kernel<Sign>("sign"));
  out.push_back(kernel<Square>("square"));
  out.push_back(kernel<Floor>("floor"));
  out.push_back(kernel<Ceil>("ceil"));
  out.push_back(kernel<Round>("round"));
  out.push_back(kernel<Exp>("exp", kTranscendental));
  out.push_back(kernel<Log>("log", kTranscendental));
  out.push_back(kernel<Log1p>("log1p", kTranscendental));
  out.push_back(kernel<Sqrt>("sqrt", kRoot));
  out.push_back(kernel<Rsqrt>("rsqrt", kRoot));
  out.push_back(kernel<Reciprocal>("reciprocal", kRoot));
  out.push_back(kernel<Sin>("sin", kTranscendental));
  out.push_back(kernel<Cos>("cos", kTranscendental));
  out.push_back(kernel<Erf>("erf", kTranscendental));
  out.push_back(kernel<Tanh>("tanh", kTranscendental));
  out.push_back(kernel<Sigmoid>("sigmoid", kTranscendental));
  out.push_back(kernel<Softplus>("softplus", 2 * kTranscendental));
  out.push_back(kernel<Silu>("silu", kTranscendental));
  out.push_back(kernel<Gelu>("gelu", kTranscendental));
  out.push_back(kernel<GeluTanh>("gelu_tanh", kTranscendental));
  out.push_back(kernel<Relu>("relu"));
  out.push_back(kernel<Relu6>("relu6"));
  out.push_back(kernel<LeakyRelu>("leaky_relu"));
  out.push_back(kernel<Elu>("elu", kTranscendental));
  out.push_back(kernel<Clip>("clip"));
  out.push_back(gradient_kernel<ReluGradient>("relu_gradient"));
  out.push_back(gradient_kernel<Relu6Gradient>("relu6_gradient"));
  out.push_back(gradient_kernel<LeakyReluGradient>("leaky_relu_gradient"));
  out.push_back(gradient_kernel<EluGradient>("elu_gradient"));
  out.push_back(gradient_kernel<GeluGradient>("gelu_gradient", kTranscendental));
  out.push_back(gradient_kernel<ClipGradient>("clip_gradient"));
  return out;
}

}  // namespace belfry
