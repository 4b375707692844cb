#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/pools_internal.h>

namespace belfry {

namespace {

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

/// The largest of one window, and where it was where `index` is given. The first element is taken as it is, a NaN too.
template <class T>
void take_window(const Patch& patch, const T* x, T* y, std::uint8_t* index, std::int64_t channels) {
  bool begun = false;
  patch.for_each([&](std::int64_t pixel, std::int64_t position) {
    const T* from = x + pixel * channels;
    auto here = static_cast<std::uint8_t>(position);
    if (!begun) {
      std::copy_n(from, channels, y);
      if (index) std::fill_n(index, channels, here);
    } else if (index) take<T>(from, here, y, index, channels);
    else take_value<T>(from, y, channels);
    begun = true;
  });
}

Kernel forward() {
  return {.name = "nhwc_max_pool2d", .op = "max_pool2d", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() {
              return over_lines(r, [c = r.inputs[0].shape[3]](const Arguments& a, const Patch& patch, std::int64_t picture, std::int64_t y) {
                take_window<T>(patch, a.in<T>(0) + picture, a.out<T>(0) + y, a.outputs[1] ? a.out<std::uint8_t>(1) + y : nullptr, c);
              });
            });
          }};
}

Kernel gradient() {
  return {.name = "nhwc_max_pool2d", .op = "max_pool2d_gradient", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() {
              return over_pictures<T>(r, [c = r.outputs[0].shape[3]](const Arguments& a, const Patch& patch, T* dx, std::int64_t y) {
                patch.for_each([&](std::int64_t pixel, std::int64_t position) { give<T>(a.in<T>(0) + y, a.in<std::uint8_t>(1) + y, static_cast<std::uint8_t>(position), dx + pixel * c, c); });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> max_pool2d_cpu() { return {forward(), gradient()}; }

}  // namespace belfry
