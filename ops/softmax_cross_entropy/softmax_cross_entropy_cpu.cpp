#include <cmath>

#include <belfry/ops/softmax_cross_entropy/formulas.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry {

namespace {

constexpr std::int64_t kCost = 16;

/// x − top − log Σ exp(x − top): exponentials in T, the sum and the logarithm in f64.
template <class T>
struct LogProbability {
  LogProbability(const T* x, std::int64_t n) : x(x), top(x[0]) {
    for (std::int64_t k = 1; k < n; ++k) top = std::max(top, x[k]);
    double sum = 0;
    for (std::int64_t k = 0; k < n; ++k) sum += static_cast<double>(std::exp(x[k] - top));
    log_sum = std::log(sum);
  }
  double operator()(std::int64_t k) const { return static_cast<double>(x[k] - top) - log_sum; }
  const T* x;
  T top;
  double log_sum;
};

/// Per example: loss(row, log_p), and the logarithms where somebody reads them.
template <class T, class Loss>
void for_each_example(const Arguments& a, std::int64_t rows, std::int64_t classes, int threads, const Loss& loss) {
  T* all = a.outputs[1] ? a.out<T>(1) : nullptr;
  for_ranges(rows, rows * classes * kCost, threads, [&](std::int64_t first, std::int64_t past) {
    for (std::int64_t row = first; row < past; ++row) {
      LogProbability<T> log_p(a.in<T>(0) + row * classes, classes);
      a.out<T>(0)[row] = static_cast<T>(loss(row, log_p));
      if (all)
        for (std::int64_t k = 0; k < classes; ++k) all[row * classes + k] = static_cast<T>(log_p(k));
    }
  });
}

Kernel dense() {
  return {.name = "row_cross_entropy", .op = "softmax_cross_entropy", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            std::int64_t rows = r.outputs[0].elements(), classes = r.inputs[0].shape.back();
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, threads = r.threads](const Arguments& a) {
                for_each_example<T>(a, rows, classes, threads, [&](std::int64_t row, const LogProbability<T>& log_p) {
                  const T* label = a.in<T>(1) + row * classes;
                  double loss = 0;
                  for (std::int64_t k = 0; k < classes; ++k)
                    if (label[k] != 0) loss -= static_cast<double>(label[k]) * log_p(k);
                  return loss;
                });
              });
            });
          }};
}

Kernel sparse() {
  return {.name = "row_cross_entropy", .op = "sparse_softmax_cross_entropy",
          .supports = [](const KernelRequest& r) { return takes(r, {f32, f64}).ok ? takes_indices(r, 1) : takes(r, {f32, f64}); },
          .prepare = [](const KernelRequest& r) {
            std::int64_t rows = r.outputs[0].elements(), classes = r.inputs[0].shape.back();
            return visit_float(r.inputs[0].dtype, [&]<class T>() {
              return visit_index(r.inputs[1].dtype, [&]<class I>() -> std::unique_ptr<Prepared> {
                return prepared([=, threads = r.threads, losses = r.output_types[0], share = r.share](const Arguments& a) {
                  const I* label = a.in<I>(1);
                  for (std::int64_t row = 0; row < rows; ++row)
                    if (static_cast<std::int64_t>(label[row]) < 0 || static_cast<std::int64_t>(label[row]) >= classes)
                      throw UserError(fmt::format("[sparse_softmax_cross_entropy] label {} of row {} is no class; classes are 0 to {}", label[row], global_example(row, rows, losses, share), classes - 1));
                  for_each_example<T>(a, rows, classes, threads, [&](std::int64_t row, const LogProbability<T>& log_p) { return -log_p(static_cast<std::int64_t>(label[row])); });
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> softmax_cross_entropy_cpu() { return {dense(), sparse()}; }

}  // namespace belfry
