#include <cmath>

#include <belfry/ops/batch_norm/slope_internal.h>
#include <belfry/ops/cpu/column_sums_internal.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry {

namespace {

/// The sums of both kernels, and per channel six numbers behind them.
struct Norm {
  explicit Norm(const KernelRequest& r)
      : channels(r.inputs[0].shape.back()), rows(channels ? r.inputs[0].elements() / channels : 0), sums(rows, channels), epsilon(r.attributes->real("epsilon")), threads(r.threads) {}
  static std::int64_t scratch_bytes(const KernelRequest& r) {
    Norm n(r);
    return n.sums.scratch_bytes(2) + 6 * n.channels * static_cast<std::int64_t>(sizeof(double));
  }
  std::int64_t channels, rows;
  ColumnSums sums;
  double epsilon;
  int threads;
};

template <class T>
BELFRY_CLONES void add_rows(const T* x, std::int64_t rows, std::int64_t channels, double* out) {
  for (std::int64_t i = 0; i < rows; ++i, x += channels)
    for (std::int64_t k = 0; k < channels; ++k) out[k] += static_cast<double>(x[k]);
}

template <class T>
BELFRY_CLONES void add_squares(const T* x, const double* mean, std::int64_t rows, std::int64_t channels, double* out) {
  for (std::int64_t i = 0; i < rows; ++i, x += channels)
    for (std::int64_t k = 0; k < channels; ++k) {
      double d = static_cast<double>(x[k]) - mean[k];
      out[k] += d * d;
    }
}

/// y = x·scale + shift, in f64 as the reference.
template <class T>
BELFRY_CLONES void normalise(const T* x, const double* mean, const double* scale, const double* shift, std::int64_t rows, std::int64_t channels, T* y) {
  for (std::int64_t i = 0; i < rows; ++i, x += channels, y += channels)
    for (std::int64_t k = 0; k < channels; ++k) y[k] = static_cast<T>((static_cast<double>(x[k]) - mean[k]) * scale[k] + shift[k]);
}

Support supported(const KernelRequest& r) {
  Support s = takes(r, {f32, f64});
  s.scratch_bytes = Norm::scratch_bytes(r);
  return s;
}

Kernel forward() {
  return {.name = "block_batch_norm", .op = "batch_norm",
          .supports = supported,
          .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([n = Norm(r)](const Arguments& a) {
                const T *x = a.in<T>(0), *gamma = a.in<T>(1), *beta = a.in<T>(2);  // the last two may be left out
                auto* partials = reinterpret_cast<double*>(a.scratch);
                double *mean = partials + n.sums.blocks * n.channels * 2, *scale = mean + n.channels, *shift = scale + n.channels, count = static_cast<double>(n.rows);
                n.sums.run(partials, 1, n.threads, [&](std::int64_t first, std::int64_t past, double* out) { add_rows<T>(x + first * n.channels, past - first, n.channels, out); });
                for (std::int64_t k = 0; k < n.channels; ++k) mean[k] = partials[k] / count;
                n.sums.run(partials, 1, n.threads, [&](std::int64_t first, std::int64_t past, double* out) { add_squares<T>(x + first * n.channels, mean, past - first, n.channels, out); });
                for (std::int64_t k = 0; k < n.channels; ++k) {
                  double variance = partials[k] / count;
                  scale[k] = (gamma ? static_cast<double>(gamma[k]) : 1) / std::sqrt(variance + n.epsilon);
                  shift[k] = beta ? static_cast<double>(beta[k]) : 0;
                  if (a.outputs[1]) a.out<T>(1)[k] = static_cast<T>(mean[k]);
                  if (a.outputs[2]) a.out<T>(2)[k] = static_cast<T>(variance);
                  if (a.outputs[3]) a.out<T>(3)[k] = static_cast<T>(variance * (count / std::max(count - 1, 1.0)));
                }
                for_ranges(n.rows, n.rows * n.channels, n.threads, [&](std::int64_t first, std::int64_t past) {
                  normalise<T>(x + first * n.channels, mean, scale, shift, past - first, n.channels, a.out<T>(0) + first * n.channels);
                });
              });
            });
          }};
}

/// What lies beside x and dy in a gradient: per channel the mean, 1/√(variance + epsilon), γ times that, and β.
struct Statistics {
  const double *mean, *inverse, *scale, *shift;
};

/// dgamma = Σ dy·x̂ and dbeta = Σ dy, side by side.
template <Slope S, class T>
BELFRY_CLONES void add_gradients(const T* x, const T* dy, Statistics c, std::int64_t rows, std::int64_t channels, double* dgamma, double* dbeta) {
  for (std::int64_t i = 0; i < rows; ++i, x += channels, dy += channels)
    BELFRY_IVDEP
    for (std::int64_t k = 0; k < channels; ++k) {
      const double centred = static_cast<double>(x[k]) - c.mean[k], d = passes(S, centred * c.scale[k] + c.shift[k]) ? static_cast<double>(dy[k]) : 0;
      dgamma[k] += d * (centred * c.inverse[k]);
      dbeta[k] += d;
    }
}

template <Slope S, class T>
BELFRY_CLONES void input_gradient(const T* x, const T* dy, Statistics c, const double* dgamma, const double* dbeta, std::int64_t rows, std::int64_t channels, T* dx) {
  for (std::int64_t i = 0; i < rows; ++i, x += channels, dy += channels, dx += channels)
    BELFRY_IVDEP
    for (std::int64_t k = 0; k < channels; ++k) {
      const double centred = static_cast<double>(x[k]) - c.mean[k], d = passes(S, centred * c.scale[k] + c.shift[k]) ? static_cast<double>(dy[k]) : 0;
      dx[k] = static_cast<T>(c.scale[k] * (d - dbeta[k] - centred * c.inverse[k] * dgamma[k]));
    }
}

template <Slope S, class T>
void gradient_of(const Norm& n, const Arguments& a) {
  const T *x = a.in<T>(0), *gamma = a.in<T>(1), *beta = a.in<T>(2), *mean = a.in<T>(3), *variance = a.in<T>(4), *dy = a.in<T>(5);
  const std::int64_t c = n.channels;
  auto* partials = reinterpret_cast<double*>(a.scratch);
  double *centre = partials + n.sums.blocks * c * 2, *inverse = centre + c, *scale = inverse + c, *shift = scale + c, *dgamma = shift + c, *dbeta = dgamma + c, count = static_cast<double>(n.rows);
  for (std::int64_t k = 0; k < c; ++k) {
    centre[k] = static_cast<double>(mean[k]);
    inverse[k] = 1 / std::sqrt(static_cast<double>(variance[k]) + n.epsilon);
    scale[k] = gamma ? static_cast<double>(gamma[k]) * inverse[k] : inverse[k];
    shift[k] = beta ? static_cast<double>(beta[k]) : 0;
  }
  const Statistics of{centre, inverse, scale, shift};
  n.sums.run(partials, 2, n.threads, [&](std::int64_t first, std::int64_t past, double* out) { add_gradients<S>(x + first * c, dy + first * c, of, past - first, c, out, out + c); });
  for (std::int64_t k = 0; k < c; ++k) {
    if (a.outputs[1]) a.out<T>(1)[k] = static_cast<T>(partials[k]);
    if (a.outputs[2]) a.out<T>(2)[k] = static_cast<T>(partials[c + k]);
    dgamma[k] = partials[k] / count;
    dbeta[k] = partials[c + k] / count;
  }
  if (!a.outputs[0]) return;
  for_ranges(n.rows, n.rows * c, n.threads,
             [&](std::int64_t first, std::int64_t past) { input_gradient<S>(x + first * c, dy + first * c, of, dgamma, dbeta, past - first, c, a.out<T>(0) + first * c); });
}

Kernel gradient() {
  return {.name = "block_batch_norm", .op = "batch_norm_gradient",
          .supports = supported,
          .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              const Slope slope = slope_of(*r.attributes);
              return prepared([n = Norm(r), run = slope == Slope::relu ? gradient_of<Slope::relu, T> : slope == Slope::relu6 ? gradient_of<Slope::relu6, T> : gradient_of<Slope::one, T>](const Arguments& a) { run(n, a); });
            });
          }};
}

}  // namespace

std::vector<Kernel> batch_norm_cpu() { return {forward(), gradient()}; }

}  // namespace belfry
