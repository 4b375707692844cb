#include <cmath>
#include <cstring>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/layer_norm/formulas.h>

namespace belfry {

namespace {

constexpr int kLanes = 8;  // sums side by side: the order is fixed, and vectors can follow it

double joined(const double* lanes) {
  double out = 0;
  for (int j = 0; j < kLanes; ++j) out += lanes[j];
  return out;
}

using Lanes [[gnu::vector_size(kLanes * sizeof(double))]] = double;

/// kLanes elements in f64.
template <class T>
[[gnu::always_inline]] inline void widen(const T* x, Lanes& out) {
  using Narrow [[gnu::vector_size(kLanes * sizeof(T))]] = T;
  Narrow v;
  std::memcpy(&v, x, sizeof v);
  out = __builtin_convertvector(v, Lanes);
}

/// Adds Σ (x − mean), or its square, to the lanes.
template <class T>
BELFRY_CLONES void add_powers(const T* x, std::int64_t n, double mean, bool squared, double* lanes) {
  Lanes sums;
  std::memcpy(&sums, lanes, sizeof sums);
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    Lanes d;
    widen(x + k, d);
    d -= mean;
    sums += squared ? d * d : d;
  }
  std::memcpy(lanes, &sums, sizeof sums);
  for (int j = 0; k < n; ++k, ++j) {
    double d = static_cast<double>(x[k]) - mean;
    lanes[j] += squared ? d * d : d;
  }
}

template <class T>
BELFRY_CLONES void normalise(const T* x, std::int64_t n, double mean, double inverse, const double* gamma, const double* beta, T* y) {
  for (std::int64_t k = 0; k < n; ++k) y[k] = static_cast<T>((static_cast<double>(x[k]) - mean) * inverse * gamma[k] + beta[k]);
}

/// Adds dy·x̂ and dy to dgamma and dbeta, and g and g·x̂ to the lanes, where g is dy·gamma.
template <class T>
BELFRY_CLONES void add_slopes(const T* x, const T* dy, const double* gamma, std::int64_t n, double mean, double inverse, double* dgamma, double* dbeta, double* lanes) {
  Lanes sums, products;
  std::memcpy(&sums, lanes, sizeof sums);
  std::memcpy(&products, lanes + kLanes, sizeof products);
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    Lanes d, normal, scale, at_gamma, at_beta;
    widen(dy + k, d);
    widen(x + k, normal);
    normal = (normal - mean) * inverse;
    std::memcpy(&scale, gamma + k, sizeof scale);
    std::memcpy(&at_gamma, dgamma + k, sizeof at_gamma);
    std::memcpy(&at_beta, dbeta + k, sizeof at_beta);
    at_gamma += d * normal;
    at_beta += d;
    std::memcpy(dgamma + k, &at_gamma, sizeof at_gamma);
    std::memcpy(dbeta + k, &at_beta, sizeof at_beta);
    sums += d * scale;
    products += d * scale * normal;
  }
  std::memcpy(lanes, &sums, sizeof sums);
  std::memcpy(lanes + kLanes, &products, sizeof products);
  for (int j = 0; k < n; ++k, ++j) {
    double d = static_cast<double>(dy[k]), normal = (static_cast<double>(x[k]) - mean) * inverse, g = d * gamma[k];
    dgamma[k] += d * normal;
    dbeta[k] += d;
    lanes[j] += g;
    lanes[kLanes + j] += g * normal;
  }
}

template <class T>
BELFRY_CLONES void input_gradient(const T* x, const T* dy, const double* gamma, std::int64_t n, double mean, double inverse, double sum, double product, T* dx) {
  for (std::int64_t k = 0; k < n; ++k) {
    double normal = (static_cast<double>(x[k]) - mean) * inverse;
    dx[k] = static_cast<T>(inverse * (static_cast<double>(dy[k]) * gamma[k] - sum - normal * product));
  }
}

// The same over the places of an example with numbers per channel, for groups that are too narrow for lanes.

template <class T>
BELFRY_CLONES void add_powers(const T* x, std::int64_t places, std::int64_t channels, const double* mean, bool squared, double* sums) {
  for (std::int64_t i = 0; i < places; ++i, x += channels)
    for (std::int64_t k = 0; k < channels; ++k) {
      double d = static_cast<double>(x[k]) - mean[k];
      sums[k] += squared ? d * d : d;
    }
}

template <class T>
BELFRY_CLONES void normalise(const T* x, std::int64_t places, std::int64_t channels, const double* mean, const double* inverse, const double* gamma, const double* beta, T* y) {
  for (std::int64_t i = 0; i < places; ++i, x += channels, y += channels)
    for (std::int64_t k = 0; k < channels; ++k) y[k] = static_cast<T>((static_cast<double>(x[k]) - mean[k]) * inverse[k] * gamma[k] + beta[k]);
}

template <class T>
BELFRY_CLONES void add_slopes(const T* x, const T* dy, std::int64_t places, std::int64_t channels, const double* mean, const double* inverse, double* products, double* sums) {
  for (std::int64_t i = 0; i < places; ++i, x += channels, dy += channels)
    for (std::int64_t k = 0; k < channels; ++k) {
      double d = static_cast<double>(dy[k]);
      products[k] += d * ((static_cast<double>(x[k]) - mean[k]) * inverse[k]);
      sums[k] += d;
    }
}

template <class T>
BELFRY_CLONES void input_gradient(const T* x, const T* dy, const double* gamma, std::int64_t places, std::int64_t channels, const double* mean, const double* inverse, const double* sum,
                                  const double* product, T* dx) {
  for (std::int64_t i = 0; i < places; ++i, x += channels, dy += channels, dx += channels)
    for (std::int64_t k = 0; k < channels; ++k) {
      double normal = (static_cast<double>(x[k]) - mean[k]) * inverse[k];
      dx[k] = static_cast<T>(inverse[k] * (static_cast<double>(dy[k]) * gamma[k] - sum[k] - normal * product[k]));
    }
}

struct Norm : NormLayout {
  explicit Norm(const KernelRequest& r)
      : NormLayout(*r.attributes, r.inputs[0].shape), rms(r.attributes->find("rms") && r.attributes->flag("rms")), epsilon(r.attributes->real("epsilon")), threads(r.threads),
        block(std::max<std::int64_t>(1, 16 * 1024 / std::max<std::int64_t>(example(), 1))), blocks((examples + block - 1) / block) {}
  bool by_channel() const { return groups > 1 || places > 1; }
  /// Numbers per channel: the parameters, what a part works with, and the sums of the blocks.
  std::int64_t scratch(bool backward) const { return channels() * ((backward ? 1 + 2 * blocks : 2) + (by_channel() ? kOwn * threads : 0)); }
  double count() const { return static_cast<double>(places * width); }
  /// A parameter in f64, or what stands for it.
  template <class T>
  void widen(const Arguments& a, std::size_t input, double otherwise, double* to) const {
    const T* from = input < a.inputs.size() ? a.in<T>(input) : nullptr;
    for (std::int64_t k = 0; k < channels(); ++k) to[k] = from ? static_cast<double>(from[k]) : otherwise;
  }
  /// Each channel gets the sum of its group's, divided by the count.
  void spread(double* sums) const {
    for (std::int64_t group = 0; group < groups; ++group, sums += width) {
      double sum = 0;
      for (std::int64_t k = 0; k < width; ++k) sum += sums[k];
      std::fill_n(sums, width, sum / count());
    }
  }

  static constexpr std::int64_t kOwn = 4;
  bool rms;
  double epsilon;
  int threads;
  std::int64_t block, blocks;  ///< of examples: sums over examples are taken block by block
};

template <class T>
void forward_row(const Norm& n, const Arguments& a, std::int64_t e, const double* gamma, const double* beta, double*) {
  const T* x = a.in<T>(0) + e * n.width;
  auto moment = [&](double mean, bool squared) {
    double lanes[kLanes] = {};
    add_powers<T>(x, n.width, mean, squared, lanes);
    return joined(lanes) / n.count();
  };
  double mean = n.rms ? 0 : moment(0, false), inverse = 1 / std::sqrt(moment(mean, true) + n.epsilon);
  normalise<T>(x, n.width, mean, inverse, gamma, beta, a.out<T>(0) + e * n.width);
  if (a.outputs[1]) a.out<T>(1)[e] = static_cast<T>(mean);
  if (a.outputs[2]) a.out<T>(2)[e] = static_cast<T>(inverse);
}

template <class T>
void forward_channels(const Norm& n, const Arguments& a, std::int64_t e, const double* gamma, const double* beta, double* own) {
  std::int64_t c = n.channels();
  const T* x = a.in<T>(0) + e * n.example();
  double *none = own, *mean = none + c, *inverse = mean + c;
  std::fill_n(own, 3 * c, 0.0);
  add_powers<T>(x, n.places, c, none, false, mean);
  n.spread(mean);
  add_powers<T>(x, n.places, c, mean, true, inverse);
  n.spread(inverse);
  for (std::int64_t k = 0; k < c; ++k) inverse[k] = 1 / std::sqrt(inverse[k] + n.epsilon);
  normalise<T>(x, n.places, c, mean, inverse, gamma, beta, a.out<T>(0) + e * n.example());
  for (std::int64_t group = 0; group < n.groups; ++group) {
    if (a.outputs[1]) a.out<T>(1)[e * n.groups + group] = static_cast<T>(mean[group * n.width]);
    if (a.outputs[2]) a.out<T>(2)[e * n.groups + group] = static_cast<T>(inverse[group * n.width]);
  }
}

template <class T>
void forward(const Norm& n, const Arguments& a) {
  double *gamma = reinterpret_cast<double*>(a.scratch), *beta = gamma + n.channels();
  n.widen<T>(a, 1, 1, gamma);
  n.widen<T>(a, 2, 0, beta);
  auto one = n.by_channel() ? forward_channels<T> : forward_row<T>;
  for_parts(n.examples, n.examples * n.example(), n.threads, [&](std::int64_t part, std::int64_t first, std::int64_t past) {
    for (std::int64_t e = first; e < past; ++e) one(n, a, e, gamma, beta, beta + (1 + part * Norm::kOwn) * n.channels());
  });
}

/// Adds to dgamma and dbeta, and writes dx.
template <class T>
void gradient_row(const Norm& n, const Arguments& a, std::int64_t e, const double* gamma, double* dgamma, double* dbeta, double*) {
  const T *x = a.in<T>(0) + e * n.width, *dy = a.in<T>(3) + e * n.width;
  double mean = static_cast<double>(a.in<T>(1)[e]), inverse = static_cast<double>(a.in<T>(2)[e]), lanes[2 * kLanes] = {};
  add_slopes<T>(x, dy, gamma, n.width, mean, inverse, dgamma, dbeta, lanes);
  double sum = n.rms ? 0 : joined(lanes) / n.count(), product = joined(lanes + kLanes) / n.count();
  input_gradient<T>(x, dy, gamma, n.width, mean, inverse, sum, product, a.out<T>(0) + e * n.width);
}

template <class T>
void gradient_channels(const Norm& n, const Arguments& a, std::int64_t e, const double* gamma, double* dgamma, double* dbeta, double* own) {
  std::int64_t c = n.channels();
  const T *x = a.in<T>(0) + e * n.example(), *dy = a.in<T>(3) + e * n.example();
  double *mean = own, *inverse = mean + c, *sum = inverse + c, *product = sum + c;
  for (std::int64_t k = 0; k < c; ++k) {
    std::int64_t at = e * n.groups + k / n.width;
    mean[k] = static_cast<double>(a.in<T>(1)[at]);
    inverse[k] = static_cast<double>(a.in<T>(2)[at]);
    sum[k] = product[k] = 0;
  }
  add_slopes<T>(x, dy, n.places, c, mean, inverse, product, sum);
  for (std::int64_t k = 0; k < c; ++k) {
    dgamma[k] += product[k];
    dbeta[k] += sum[k];
    sum[k] *= gamma[k];
    product[k] *= gamma[k];
  }
  n.spread(sum);
  n.spread(product);
  input_gradient<T>(x, dy, gamma, n.places, c, mean, inverse, sum, product, a.out<T>(0) + e * n.example());
}

template <class T>
void gradient(const Norm& n, const Arguments& a) {
  std::int64_t c = n.channels();
  double *gamma = reinterpret_cast<double*>(a.scratch), *partials = gamma + c;
  n.widen<T>(a, 4, 1, gamma);
  auto one = n.by_channel() ? gradient_channels<T> : gradient_row<T>;
  for_parts(n.blocks, n.examples * n.example(), n.threads, [&](std::int64_t part, std::int64_t first, std::int64_t past) {
    double* own = partials + (2 * n.blocks + part * Norm::kOwn) * c;
    for (std::int64_t b = first; b < past; ++b) {
      double* dgamma = partials + b * 2 * c;
      std::fill_n(dgamma, 2 * c, 0.0);
      for (std::int64_t e = b * n.block; e < std::min(n.examples, (b + 1) * n.block); ++e) one(n, a, e, gamma, dgamma, dgamma + c, own);
    }
  });
  for (int which : {1, 2}) {
    if (!a.outputs[static_cast<std::size_t>(which)]) continue;
    for (std::int64_t k = 0; k < c; ++k) {
      double sum = 0;
      for (std::int64_t b = 0; b < n.blocks; ++b) sum += partials[b * 2 * c + (which - 1) * c + k];
      a.out<T>(static_cast<std::size_t>(which))[k] = static_cast<T>(sum);
    }
  }
}

Kernel kernel(const char* op, bool backward) {
  return {.name = "row_norm", .op = op,
          .supports = [backward](const KernelRequest& r) {
            Support s = takes(r, {f32, f64});
            if (!s.ok) return s;
            s.scratch_bytes = Norm(r).scratch(backward) * static_cast<std::int64_t>(sizeof(double));
            return s;
          },
          .prepare = [backward](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() { return prepared([n = Norm(r), run = backward ? gradient<T> : forward<T>](const Arguments& a) { run(n, a); }); });
          }};
}

}  // namespace

std::vector<Kernel> layer_norm_cpu() {
  return {kernel("layer_norm", false), kernel("group_norm", false), kernel("layer_norm_gradient", true), kernel("group_norm_gradient", true)};
}

}  // namespace belfry
