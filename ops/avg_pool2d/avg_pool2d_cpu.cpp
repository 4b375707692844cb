#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/pools_internal.h>

namespace belfry {

namespace {

template <class T>
BELFRY_CLONES void add(const T* x, T* y, std::int64_t n) {
  for (std::int64_t k = 0; k < n; ++k) y[k] += x[k];
}

template <class T>
BELFRY_CLONES void divide(T* y, T count, std::int64_t n) {
  for (std::int64_t k = 0; k < n; ++k) y[k] /= count;
}

template <class T>
BELFRY_CLONES void give(const T* dy, T count, T* dx, std::int64_t n) {
  for (std::int64_t k = 0; k < n; ++k) dx[k] += dy[k] / count;
}

/// The elements of one window summed row by row, then divided.
template <class T>
void mean_of_window(const Patch& patch, const T* x, T* y, std::int64_t channels) {
  std::fill_n(y, channels, T{0});
  patch.for_each([&](std::int64_t pixel, std::int64_t) { add<T>(x + pixel * channels, y, channels); });
  divide<T>(y, static_cast<T>(patch.count()), channels);
}

Kernel forward() {
  return {.name = "nhwc_avg_pool2d", .op = "avg_pool2d", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() {
              return over_lines(r, [c = r.inputs[0].shape[3]](const Arguments& a, const Patch& patch, std::int64_t picture, std::int64_t y) {
                mean_of_window<T>(patch, a.in<T>(0) + picture, a.out<T>(0) + y, c);
              });
            });
          }};
}

Kernel gradient() {
  return {.name = "nhwc_avg_pool2d", .op = "avg_pool2d_gradient", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() {
              return over_pictures<T>(r, [c = r.outputs[0].shape[3]](const Arguments& a, const Patch& patch, T* dx, std::int64_t y) {
                patch.for_each([&](std::int64_t pixel, std::int64_t) { give<T>(a.in<T>(0) + y, static_cast<T>(patch.count()), dx + pixel * c, c); });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> avg_pool2d_cpu() { return {forward(), gradient()}; }

}  // namespace belfry
