#include <cmath>

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

/// Adds Σ (x − mean)^power to the lanes.
template <class T>
BELFRY_CLONES void add_powers(const T* x, std::int64_t n, double mean, bool squared, double* lanes) {
  double sums[kLanes];
  std::copy_n(lanes, kLanes, sums);
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes)
    for (int j = 0; j < kLanes; ++j) {
      double d = static_cast<double>(x[k + j]) - mean;
      sums[j] += squared ? d * d : d;
    }
  for (int j = 0; k < n; ++k, ++j) {
    double d = static_cast<double>(x[k]) - mean;
    sums[j] += squared ? d * d : d;
  }
  std::copy_n(sums, kLanes, lanes);
}

template <class T>
BELFRY_CLONES void normalise(const T* x, std::int64_t n, double mean, double inverse, const double* gamma, const double* beta, T* y) {
  for (std::int64_t k = 0; k < n; ++k) y[k] = static_cast<T>((static_cast<double>(x[k]) - mean) * inverse * gamma[k] + beta[k]);
}

/// Adds dy·x̂ and dy to dgamma and dbeta, and g and g·x̂ to the lanes, where g is dy·gamma.
template <class T>
BELFRY_CLONES void add_slopes(const T* x, const T* dy, const double* gamma, std::int64_t n, double mean, double inverse, double* dgamma, double* dbeta, double* lanes) {
  double sums[2 * kLanes];
  std::copy_n(lanes, 2 * kLanes, sums);
  auto one = [&](std::int64_t k, int j) {
    double d = static_cast<double>(dy[k]), normal = (static_cast<double>(x[k]) - mean) * inverse, g = d * gamma[k];
    dgamma[k] += d * normal;
    dbeta[k] += d;
    sums[j] += g;
    sums[kLanes + j] += g * normal;
  };
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes)
    for (int j = 0; j < kLanes; ++j) one(k + j, j);
  for (int j = 0; k < n; ++k, ++j) one(k, j);
  std::copy_n(sums, 2 * kLanes, lanes);
}

template <class T>
BELFRY_CLONES void input_gradient(const T* x, const T* dy, const double* gamma, std::int64_t n, double mean, double inverse, double sum, double product, T* dx) {
  for (std::int64_t k = 0; k < n; ++k) {
    double normal = (static_cast<double>(x[k]) - mean) * inverse;
    dx[k] = static_cast<T>(inverse * (static_cast<double>(dy[k]) * gamma[k] - sum - normal * product));
  }
}

struct Norm : NormLayout {
  explicit Norm(const KernelRequest& r)
      : NormLayout(*r.attributes, r.inputs[0].shape), rms(r.attributes->find("rms") && r.attributes->flag("rms")), epsilon(r.attributes->real("epsilon")), threads(r.threads),
        block(std::max<std::int64_t>(1, 16 * 1024 / std::max<std::int64_t>(example(), 1))), blocks((examples + block - 1) / block) {}
  /// A parameter in f64, or what stands for it.
  template <class T>
  void widen(const Arguments& a, std::size_t input, double otherwise, double* to) const {
    const T* from = input < a.inputs.size() ? a.in<T>(input) : nullptr;
    for (std::int64_t k = 0; k < channels(); ++k) to[k] = from ? static_cast<double>(from[k]) : otherwise;
  }
  double count() const { return static_cast<double>(places * width); }

  bool rms;
  double epsilon;
  int threads;
  std::int64_t block, blocks;  ///< of examples: sums over examples are taken block by block
};

template <class T>
void forward(const Norm& n, const Arguments& a) {
  const T* x = a.in<T>(0);
  double *gamma = reinterpret_cast<double*>(a.scratch), *beta = gamma + n.channels();
  n.widen<T>(a, 1, 1, gamma);
  n.widen<T>(a, 2, 0, beta);
  for_ranges(n.examples, n.examples * n.example(), n.threads, [&](std::int64_t first, std::int64_t past) {
    for (std::int64_t e = first; e < past; ++e)
      for (std::int64_t group = 0; group < n.groups; ++group) {
        auto moment = [&](double mean, bool squared) {
          double lanes[kLanes] = {};
          for (std::int64_t place = 0; place < n.places; ++place) add_powers<T>(x + n.run(e, place, group), n.width, mean, squared, lanes);
          return joined(lanes) / n.count();
        };
        double mean = n.rms ? 0 : moment(0, false), inverse = 1 / std::sqrt(moment(mean, true) + n.epsilon);
        for (std::int64_t place = 0; place < n.places; ++place) {
          std::int64_t at = n.run(e, place, group), k = group * n.width;
          normalise<T>(x + at, n.width, mean, inverse, gamma + k, beta + k, a.out<T>(0) + at);
        }
        if (a.outputs[1]) a.out<T>(1)[e * n.groups + group] = static_cast<T>(mean);
        if (a.outputs[2]) a.out<T>(2)[e * n.groups + group] = static_cast<T>(inverse);
      }
  });
}

template <class T>
void gradient(const Norm& n, const Arguments& a) {
  const T *x = a.in<T>(0), *means = a.in<T>(1), *inverses = a.in<T>(2), *dy = a.in<T>(3);
  std::int64_t c = n.channels();
  double *gamma = reinterpret_cast<double*>(a.scratch), *partials = gamma + c;
  n.widen<T>(a, 4, 1, gamma);
  for_ranges(n.blocks, n.examples * n.example(), n.threads, [&](std::int64_t first, std::int64_t past) {
    for (std::int64_t b = first; b < past; ++b) {
      double *dgamma = partials + b * 2 * c, *dbeta = dgamma + c;
      std::fill_n(dgamma, 2 * c, 0.0);
      for (std::int64_t e = b * n.block; e < std::min(n.examples, (b + 1) * n.block); ++e)
        for (std::int64_t group = 0; group < n.groups; ++group) {
          double mean = static_cast<double>(means[e * n.groups + group]), inverse = static_cast<double>(inverses[e * n.groups + group]), lanes[2 * kLanes] = {};
          std::int64_t k = group * n.width;
          for (std::int64_t place = 0; place < n.places; ++place) {
            std::int64_t at = n.run(e, place, group);
            add_slopes<T>(x + at, dy + at, gamma + k, n.width, mean, inverse, dgamma + k, dbeta + k, lanes);
          }
          double sum = n.rms ? 0 : joined(lanes) / n.count(), product = joined(lanes + kLanes) / n.count();
          for (std::int64_t place = 0; place < n.places; ++place) {
            std::int64_t at = n.run(e, place, group);
            input_gradient<T>(x + at, dy + at, gamma + k, n.width, mean, inverse, sum, product, a.out<T>(0) + at);
          }
        }
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
            Norm n(r);
            s.scratch_bytes = (backward ? 1 + 2 * n.blocks : 2) * n.channels() * static_cast<std::int64_t>(sizeof(double));
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
