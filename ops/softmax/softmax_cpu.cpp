#include <cmath>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

constexpr std::int64_t kCost = 16;  // of an exponential, in plain operations

/// One row with stride `step`; exponentials in T, their sum in f64. y may be x.
template <class T>
void softmax_row(const T* x, T* y, std::int64_t n, std::int64_t step) {
  T top = x[0];
  for (std::int64_t k = 1; k < n; ++k) top = std::max(top, x[k * step]);
  double sum = 0;
  for (std::int64_t k = 0; k < n; ++k) sum += static_cast<double>(y[k * step] = std::exp(x[k * step] - top));
  for (std::int64_t k = 0; k < n; ++k) y[k * step] = static_cast<T>(static_cast<double>(y[k * step]) / sum);
}

template <class T>
void log_softmax_row(const T* x, T* y, std::int64_t n, std::int64_t step) {
  T top = x[0];
  for (std::int64_t k = 1; k < n; ++k) top = std::max(top, x[k * step]);
  double sum = 0;
  for (std::int64_t k = 0; k < n; ++k) sum += static_cast<double>(std::exp(x[k * step] - top));
  double log_sum = std::log(sum);
  for (std::int64_t k = 0; k < n; ++k) y[k * step] = static_cast<T>(static_cast<double>(x[k * step] - top) - log_sum);
}

template <bool kLog>
Kernel kernel(const char* op) {
  return {.name = "row_softmax", .op = op, .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            AlongAxis along(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size())));
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([along, threads = r.threads](const Arguments& a) {
                if (along.n == 0) return;
                for_ranges(along.outer, along.outer * along.n * along.inner * kCost, threads, [&](std::int64_t first, std::int64_t past) {
                  for (std::int64_t o = first; o < past; ++o)
                    for (std::int64_t i = 0; i < along.inner; ++i) {
                      std::size_t at = along.at(o, 0, i);
                      if constexpr (kLog) log_softmax_row<T>(a.in<T>(0) + at, a.out<T>(0) + at, along.n, along.inner);
                      else softmax_row<T>(a.in<T>(0) + at, a.out<T>(0) + at, along.n, along.inner);
                    }
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> softmax_cpu() { return {kernel<false>("softmax"), kernel<true>("log_softmax")}; }

}  // namespace belfry
