#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

Sliding sliding(const KernelRequest& r, const Extents& x) {
  const Integers &window = r.attributes->integers("window"), &strides = r.attributes->integers("strides");
  return {x, window[0], window[1], strides.empty() ? window : strides, r.attributes->text("padding") == "same"};
}

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

/// Window (p, q) of picture `x`: its elements summed row by row, then divided.
template <class T>
void mean_of_window(const Sliding& s, const Extents& size, std::int64_t p, std::int64_t q, const T* x, T* y) {
  auto [top, bottom] = on_data(s.h, p, s.window_h, s.stride_h, size[1]);
  auto [left, right] = on_data(s.w, q, s.window_w, s.stride_w, size[2]);
  std::int64_t c = size[3];
  std::fill_n(y, c, T{0});
  for (std::int64_t row = top; row < bottom; ++row)
    for (std::int64_t column = left; column < right; ++column) add<T>(x + (row * size[2] + column) * c, y, c);
  divide<T>(y, static_cast<T>((bottom - top) * (right - left)), c);
}

template <class T>
void give_to_window(const Sliding& s, const Extents& size, std::int64_t p, std::int64_t q, const T* dy, T* dx) {
  auto [top, bottom] = on_data(s.h, p, s.window_h, s.stride_h, size[1]);
  auto [left, right] = on_data(s.w, q, s.window_w, s.stride_w, size[2]);
  std::int64_t c = size[3];
  for (std::int64_t row = top; row < bottom; ++row)
    for (std::int64_t column = left; column < right; ++column) give<T>(dy, static_cast<T>((bottom - top) * (right - left)), dx + (row * size[2] + column) * c, c);
}

Kernel forward() {
  return {.name = "nhwc_avg_pool2d", .op = "avg_pool2d", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            Extents x = r.inputs[0].shape;
            Sliding s = sliding(r, x);
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, threads = r.threads](const Arguments& a) {
                std::int64_t c = x[3], picture = x[1] * x[2] * c, lines = x[0] * s.h.count;
                for_ranges(lines, x[0] * picture, threads, [&](std::int64_t first, std::int64_t past) {
                  for (std::int64_t line = first; line < past; ++line)
                    for (std::int64_t q = 0; q < s.w.count; ++q)
                      mean_of_window<T>(s, x, line % s.h.count, q, a.in<T>(0) + line / s.h.count * picture, a.out<T>(0) + (line * s.w.count + q) * c);
                });
              });
            });
          }};
}

/// One picture after the other: windows that overlap add up in the order of the windows.
Kernel gradient() {
  return {.name = "nhwc_avg_pool2d", .op = "avg_pool2d_gradient", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            Extents x = r.outputs[0].shape;
            Sliding s = sliding(r, x);
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, threads = r.threads](const Arguments& a) {
                std::int64_t c = x[3], picture = x[1] * x[2] * c;
                for_ranges(x[0], x[0] * picture, threads, [&](std::int64_t first, std::int64_t past) {
                  for (std::int64_t n = first; n < past; ++n) {
                    T* to = a.out<T>(0) + n * picture;
                    std::fill_n(to, picture, T{0});
                    for (std::int64_t p = 0; p < s.h.count; ++p)
                      for (std::int64_t q = 0; q < s.w.count; ++q) give_to_window<T>(s, x, p, q, a.in<T>(0) + ((n * s.h.count + p) * s.w.count + q) * c, to);
                  }
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> avg_pool2d_cpu() { return {forward(), gradient()}; }

}  // namespace belfry
