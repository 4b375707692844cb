#include <cmath>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry {

namespace {

template <class T>
BELFRY_CLONES void run_sgd(T rate, const T* w, const T* g, T* w_out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) w_out[i] = w[i] - rate * g[i];
}

template <class T>
BELFRY_CLONES void run_momentum(T rate, T keep, bool nesterov, const T* w, const T* m, const T* g, T* w_out, T* m_out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    T gradient = g[i], next = keep * m[i] + gradient, before = w[i];
    m_out[i] = next;
    w_out[i] = before - rate * (nesterov ? gradient + keep * next : next);
  }
}

template <class T>
BELFRY_CLONES void run_adam(T rate, T new1, T new2, T epsilon, const T* w, const T* m, const T* v, const T* g, T* w_out, T* m_out, T* v_out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    T gradient = g[i], before = w[i];
    T m1 = m[i] + (gradient - m[i]) * new1;
    T v1 = v[i] + (gradient * gradient - v[i]) * new2;
    m_out[i] = m1;
    v_out[i] = v1;
    w_out[i] = before - rate * m1 / (std::sqrt(v1) + epsilon);
  }
}

Kernel sgd() {
  return {.name = "simd_sgd", .op = "sgd", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([n = r.inputs[0].elements(), threads = r.threads](const Arguments& a) {
                T rate = *a.in<T>(2);
                for_ranges(n, n, threads, [&](std::int64_t b, std::int64_t e) { run_sgd<T>(rate, a.in<T>(0) + b, a.in<T>(1) + b, a.out<T>(0) + b, e - b); }, 16);
              });
            });
          }};
}

Kernel momentum() {
  return {.name = "simd_momentum", .op = "momentum", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              T keep = static_cast<T>(r.attributes->real("momentum"));
              return prepared([keep, nesterov = r.attributes->flag("nesterov"), n = r.inputs[0].elements(), threads = r.threads](const Arguments& a) {
                T rate = *a.in<T>(3);
                for_ranges(n, 2 * n, threads, [&](std::int64_t b, std::int64_t e) {
                  run_momentum<T>(rate, keep, nesterov, a.in<T>(0) + b, a.in<T>(1) + b, a.in<T>(2) + b, a.out<T>(0) + b, a.out<T>(1) + b, e - b);
                }, 16);
              });
            });
          }};
}

Kernel adam() {
  return {.name = "simd_adam", .op = "adam", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              T new1 = static_cast<T>(1 - r.attributes->real("beta1")), new2 = static_cast<T>(1 - r.attributes->real("beta2")), epsilon = static_cast<T>(r.attributes->real("epsilon"));
              return prepared([=, n = r.inputs[0].elements(), threads = r.threads](const Arguments& a) {
                T rate = *a.in<T>(4);
                for_ranges(n, 4 * n, threads, [&](std::int64_t b, std::int64_t e) {
                  run_adam<T>(rate, new1, new2, epsilon, a.in<T>(0) + b, a.in<T>(1) + b, a.in<T>(2) + b, a.in<T>(3) + b, a.out<T>(0) + b, a.out<T>(1) + b, a.out<T>(2) + b, e - b);
                }, 16);
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> optimizer_cpu() { return {sgd(), momentum(), adam()}; }

}  // namespace belfry
