#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/resize/taps.h>

namespace belfry {

namespace {

/// y = the mean of four pixels by the weights of the lower row and the right column.
template <class T>
BELFRY_CLONES void weigh(const T* a, const T* b, const T* c, const T* d, T down, T right, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    T top = a[i] + (b[i] - a[i]) * right, bottom = c[i] + (d[i] - c[i]) * right;
    y[i] = top + (bottom - top) * down;
  }
}

template <class T>
BELFRY_CLONES void give(const T* dy, T weight, T* dx, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] += weight * dy[i];
}

/// What both directions need: x is the picture that is looked at.
struct Plan {
  Plan(const KernelRequest& r, const Extents& from, const Extents& to)
      : nearest(r.attributes->text("method") == "nearest"), x(from), y(to), h(taps(x[1], y[1], nearest)), w(taps(x[2], y[2], nearest)) {}
  bool nearest;
  Extents x, y;
  std::vector<Tap> h, w;
  std::int64_t picture() const { return x[1] * x[2] * x[3]; }
  std::int64_t at(std::int64_t row, std::int64_t column) const { return (row * x[2] + column) * x[3]; }
};

template <class T>
void resize_line(const Plan& k, const Tap& p, const T* x, T* y) {
  std::int64_t c = k.x[3];
  for (const Tap& q : k.w) {
    if (k.nearest) std::copy_n(x + k.at(p.low, q.low), c, y);
    else weigh<T>(x + k.at(p.low, q.low), x + k.at(p.low, q.high), x + k.at(p.high, q.low), x + k.at(p.high, q.high), static_cast<T>(p.weight), static_cast<T>(q.weight), y, c);
    y += c;
  }
}

template <class T>
void give_line(const Plan& k, const Tap& p, const T* dy, T* dx) {
  std::int64_t c = k.x[3];
  for (const Tap& q : k.w) {
    give<T>(dy, static_cast<T>((1 - p.weight) * (1 - q.weight)), dx + k.at(p.low, q.low), c);
    if (!k.nearest) {
      give<T>(dy, static_cast<T>((1 - p.weight) * q.weight), dx + k.at(p.low, q.high), c);
      give<T>(dy, static_cast<T>(p.weight * (1 - q.weight)), dx + k.at(p.high, q.low), c);
      give<T>(dy, static_cast<T>(p.weight * q.weight), dx + k.at(p.high, q.high), c);
    }
    dy += c;
  }
}

Kernel forward() {
  return {.name = "nhwc_resize", .op = "resize", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([k = Plan(r, r.inputs[0].shape, r.outputs[0].shape), n = r.outputs[0].elements(), threads = r.threads](const Arguments& a) {
                std::int64_t line = k.y[2] * k.y[3];
                for_ranges(k.y[0] * k.y[1], n, threads, [&](std::int64_t first, std::int64_t past) {
                  for (std::int64_t i = first; i < past; ++i)
                    resize_line<T>(k, k.h[static_cast<std::size_t>(i % k.y[1])], a.in<T>(0) + i / k.y[1] * k.picture(), a.out<T>(0) + i * line);
                });
              });
            });
          }};
}

/// One picture after the other: what pixels of dy give to the same one adds up in their order.
Kernel gradient() {
  return {.name = "nhwc_resize", .op = "resize_gradient", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([k = Plan(r, r.outputs[0].shape, r.inputs[0].shape), n = r.inputs[0].elements(), threads = r.threads](const Arguments& a) {
                std::int64_t line = k.y[2] * k.y[3];
                for_ranges(k.x[0], n, threads, [&](std::int64_t first, std::int64_t past) {
                  for (std::int64_t i = first; i < past; ++i) {
                    T* dx = a.out<T>(0) + i * k.picture();
                    std::fill_n(dx, k.picture(), T{0});
                    for (std::int64_t p = 0; p < k.y[1]; ++p) give_line<T>(k, k.h[static_cast<std::size_t>(p)], a.in<T>(0) + (i * k.y[1] + p) * line, dx);
                  }
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> resize_cpu() { return {forward(), gradient()}; }

}  // namespace belfry
