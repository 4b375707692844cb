#include <cmath>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry {

namespace {

template <class T>
struct Formula {
  Formula(const Attributes& a, std::int64_t channels)
      : radius(std::min(a.integer("depth_radius"), std::max<std::int64_t>(channels - 1, 0))), bias(static_cast<T>(a.real("bias"))), alpha(static_cast<T>(a.real("alpha"))), beta(static_cast<T>(a.real("beta"))) {}
  std::int64_t radius;
  T bias, alpha, beta;
};

/// Calls f(first, past, k) with the channels whose k-th neighbour exists.
template <class F>
inline void for_each_neighbour(std::int64_t channels, std::int64_t radius, const F& f) {
  for (std::int64_t k = -radius; k <= radius; ++k) f(std::max<std::int64_t>(0, -k), std::min(channels, channels - k), k);
}

/// s = bias + alpha·Σ x² of one pixel.
template <class T>
inline void bases(const T* x, T* s, std::int64_t channels, const Formula<T>& f) {
  std::fill_n(s, channels, T{0});
  for_each_neighbour(channels, f.radius, [&](std::int64_t first, std::int64_t past, std::int64_t k) {
    BELFRY_IVDEP
    for (std::int64_t c = first; c < past; ++c) s[c] += x[c + k] * x[c + k];
  });
  for (std::int64_t c = 0; c < channels; ++c) s[c] = f.bias + f.alpha * s[c];
}

/// p = s^−beta; for the usual exponents by roots, which a processor has.
template <class T>
inline void inverse_powers(const T* s, T* p, std::int64_t n, T beta) {
  if (beta == T(0.5)) {
    for (std::int64_t i = 0; i < n; ++i) p[i] = 1 / std::sqrt(s[i]);
  } else if (beta == T(0.75)) {
    for (std::int64_t i = 0; i < n; ++i) {
      T root = std::sqrt(s[i]);
      p[i] = 1 / (root * std::sqrt(root));
    }
  } else if (beta == T(1)) {
    for (std::int64_t i = 0; i < n; ++i) p[i] = 1 / s[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) p[i] = std::pow(s[i], -beta);
  }
}

template <class T>
BELFRY_CLONES void normalise(const T* x, T* y, std::int64_t pixels, std::int64_t channels, Formula<T> f) {
  for (std::int64_t i = 0; i < pixels; ++i, x += channels, y += channels) {
    bases(x, y, channels, f);
    inverse_powers(y, y, channels, f.beta);
    for (std::int64_t c = 0; c < channels; ++c) y[c] *= x[c];
  }
}

/// `t` has room for the channels of a pixel.
template <class T>
BELFRY_CLONES void differentiate(const T* x, const T* dy, T* dx, T* t, std::int64_t pixels, std::int64_t channels, Formula<T> f) {
  const T factor = 2 * f.alpha * f.beta;
  for (std::int64_t i = 0; i < pixels; ++i, x += channels, dy += channels, dx += channels) {
    bases(x, dx, channels, f);
    inverse_powers(dx, t, channels, f.beta);
    for (std::int64_t c = 0; c < channels; ++c) {
      T power = t[c], mine = dy[c] * power;
      t[c] = factor * mine * x[c] / dx[c];
      dx[c] = mine;
    }
    for_each_neighbour(channels, f.radius, [&](std::int64_t first, std::int64_t past, std::int64_t k) {
      BELFRY_IVDEP
      for (std::int64_t c = first; c < past; ++c) dx[c] -= x[c] * t[c + k];
    });
  }
}

Kernel forward() {
  return {.name = "nhwc_local_response_norm", .op = "local_response_norm", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            std::int64_t n = r.outputs[0].elements(), channels = r.inputs[0].shape.back();
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, f = Formula<T>(*r.attributes, channels), threads = r.threads](const Arguments& a) {
                if (n == 0) return;
                for_ranges(n / channels, n, threads, [&](std::int64_t first, std::int64_t past) {
                  normalise<T>(a.in<T>(0) + first * channels, a.out<T>(0) + first * channels, past - first, channels, f);
                });
              });
            });
          }};
}

/// Bytes of each thread's own part of the scratch.
std::int64_t part(const KernelRequest& r) { return (r.inputs[0].shape.back() * static_cast<std::int64_t>(size_of(r.inputs[0].dtype)) + 63) / 64 * 64; }

Kernel gradient() {
  return {.name = "nhwc_local_response_norm", .op = "local_response_norm_gradient",
          .supports = [](const KernelRequest& r) {
            Support s = takes(r, {f32, f64});
            s.scratch_bytes = part(r) * r.threads;
            return s;
          },
          .prepare = [](const KernelRequest& r) {
            std::int64_t n = r.outputs[0].elements(), channels = r.inputs[0].shape.back();
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, f = Formula<T>(*r.attributes, channels), bytes = part(r), threads = r.threads](const Arguments& a) {
                if (n == 0) return;
                for_ranges(n / channels, n, threads, [&](std::int64_t first, std::int64_t past) {
                  T* t = reinterpret_cast<T*>(a.scratch + bytes * omp_get_thread_num());
                  differentiate<T>(a.in<T>(0) + first * channels, a.in<T>(1) + first * channels, a.out<T>(0) + first * channels, t, past - first, channels, f);
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> local_response_norm_cpu() { return {forward(), gradient()}; }

}  // namespace belfry
