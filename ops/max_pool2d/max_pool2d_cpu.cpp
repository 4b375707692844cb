#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

Sliding sliding(const KernelRequest& r, const Extents& x) {
  const Integers &window = r.attributes->integers("window"), &strides = r.attributes->integers("strides");
  return {x, window[0], window[1], strides.empty() ? window : strides, r.attributes->text("padding") == "same"};
}

/// The taps of window (p, q) that lie on the data: f(offset of channel 0 in one picture, position), row-major.
template <class F>
void for_each_tap(const Sliding& s, const Extents& x, std::int64_t p, std::int64_t q, const F& f) {
  for (std::int64_t i = 0; i < s.window_h; ++i) {
    std::int64_t row = p * s.stride_h - s.h.before + i;
    if (row < 0 || row >= x[1]) continue;
    for (std::int64_t j = 0; j < s.window_w; ++j)
      if (std::int64_t column = q * s.stride_w - s.w.before + j; column >= 0 && column < x[2]) f((row * x[2] + column) * x[3], static_cast<std::uint8_t>(i * s.window_w + j));
  }
}

template <class T>
BELFRY_CLONES void take(const T* x, std::uint8_t position, T* y, std::uint8_t* index, std::int64_t n) {
  for (std::int64_t k = 0; k < n; ++k) {
    T v = x[k], best = y[k];
    bool better = (v > best) | ((v != v) & (best == best));
    y[k] = better ? v : best;
    index[k] = better ? position : index[k];
  }
}

template <class T>
BELFRY_CLONES void take_value(const T* x, T* y, std::int64_t n) {
  for (std::int64_t k = 0; k < n; ++k) {
    T v = x[k], best = y[k];
    y[k] = (v > best) | ((v != v) & (best == best)) ? v : best;
  }
}

template <class T>
BELFRY_CLONES void give(const T* dy, const std::uint8_t* index, std::uint8_t position, T* dx, std::int64_t n) {
  for (std::int64_t k = 0; k < n; ++k) dx[k] += index[k] == position ? dy[k] : T{0};
}

Kernel forward() {
  return {.name = "nhwc_max_pool2d", .op = "max_pool2d", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            Extents x = r.inputs[0].shape;
            Sliding s = sliding(r, x);
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, threads = r.threads](const Arguments& a) {
                std::int64_t c = x[3], picture = x[1] * x[2] * c, lines = x[0] * s.h.count;
                for_ranges(lines, x[0] * picture, threads, [&](std::int64_t first, std::int64_t past) {
                  for (std::int64_t line = first; line < past; ++line)
                    for (std::int64_t q = 0; q < s.w.count; ++q) {
                      const T* from = a.in<T>(0) + line / s.h.count * picture;
                      std::int64_t at = (line * s.w.count + q) * c;
                      T* y = a.out<T>(0) + at;
                      std::uint8_t* index = a.outputs[1] ? a.out<std::uint8_t>(1) + at : nullptr;
                      bool begun = false;
                      for_each_tap(s, x, line % s.h.count, q, [&](std::int64_t offset, std::uint8_t position) {
                        if (!begun) {
                          std::copy_n(from + offset, c, y);
                          if (index) std::fill_n(index, c, position);
                        } else if (index) take<T>(from + offset, position, y, index, c);
                        else take_value<T>(from + offset, y, c);
                        begun = true;
                      });
                    }
                });
              });
            });
          }};
}

/// One picture after the other: windows that overlap add up in the order of the windows.
Kernel gradient() {
  return {.name = "nhwc_max_pool2d", .op = "max_pool2d_gradient", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
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
                      for (std::int64_t q = 0; q < s.w.count; ++q) {
                        std::int64_t at = ((n * s.h.count + p) * s.w.count + q) * c;
                        for_each_tap(s, x, p, q, [&](std::int64_t offset, std::uint8_t position) { give<T>(a.in<T>(0) + at, a.in<std::uint8_t>(1) + at, position, to + offset, c); });
                      }
                  }
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> max_pool2d_cpu() { return {forward(), gradient()}; }

}  // namespace belfry
