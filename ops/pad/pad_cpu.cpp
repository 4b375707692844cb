#include <cstring>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/pad/mirror.h>

namespace belfry {

namespace {

/// Neighbouring axes without padding are one.
struct Axis {
  std::int64_t inner = 1, outer = 1;       ///< sizes without and with padding
  bool padded = false;
  std::vector<std::int64_t> sources = {};  ///< per padded position; -1: the value. Without padding none: each is its own
  std::int64_t source(std::int64_t i) const { return padded ? sources[static_cast<std::size_t>(i)] : i; }
};

std::vector<Axis> axes_of(const Attributes& a, const Extents& x, const Extents& y) {
  std::vector<Axis> out(1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    bool padded = x[i] != y[i];
    if (padded || out.back().padded) out.push_back({1, 1, padded});
    out.back().inner *= x[i];
    out.back().outer *= y[i];
    for (std::int64_t k = 0; padded && k < y[i]; ++k) out.back().sources.push_back(unpadded(k, a.integers("before")[i], x[i], pad_mode(a.text("mode"))));
  }
  return out;
}

/// The value's bytes in the dtype, as an unsigned integer of its size.
template <class Bits>
Bits bits_of(double value, DType dtype) {
  Bits out{};
  visit_dtype(dtype, [&]<class T>() {
    T v = static_cast<T>(value);
    std::memcpy(&out, &v, std::min(sizeof out, sizeof v));
  });
  return out;
}

/// Lines are runs along the last axis.
template <class Bits>
void pad_lines(const std::vector<Axis>& axes, const Bits* x, Bits* y, Bits value, std::int64_t first, std::int64_t past) {
  const Axis& last = axes.back();
  for (std::int64_t line = first; line < past; ++line) {
    std::int64_t left = line, from = 0, step = 1;
    for (std::size_t a = axes.size() - 1; a-- > 0 && from >= 0;) {
      std::int64_t k = axes[a].source(left % axes[a].outer);
      from = k < 0 ? -1 : from + k * step;
      left /= axes[a].outer;
      step *= axes[a].inner;
    }
    const Bits* source = x + from * last.inner;
    Bits* to = y + line * last.outer;
    if (from < 0) std::fill_n(to, last.outer, value);
    else if (!last.padded) std::copy_n(source, last.outer, to);
    else
      for (std::int64_t i = 0; i < last.outer; ++i) to[i] = last.source(i) < 0 ? value : source[last.source(i)];
  }
}

template <class Bits>
std::unique_ptr<Prepared> prepare_forward(const KernelRequest& r) {
  std::vector<Axis> axes = axes_of(*r.attributes, r.inputs[0].shape, r.outputs[0].shape);
  std::int64_t n = r.outputs[0].elements(), lines = n == 0 ? 0 : n / axes.back().outer;
  return prepared([=, value = bits_of<Bits>(r.attributes->real("value"), r.inputs[0].dtype), threads = r.threads](const Arguments& a) {
    for_ranges(lines, n, threads, [&](std::int64_t first, std::int64_t past) { pad_lines<Bits>(axes, a.in<Bits>(0), a.out<Bits>(0), value, first, past); });
  });
}

Kernel forward() {
  return {.name = "copy_lines", .op = "pad", .supports = takes_any(), .prepare = [](const KernelRequest& r) {
            std::size_t size = size_of(r.inputs[0].dtype);
            return size == 1 ? prepare_forward<std::uint8_t>(r) : size == 4 ? prepare_forward<std::uint32_t>(r) : prepare_forward<std::uint64_t>(r);
          }};
}

/// Per padded axis and position without padding: where it stands with padding, in order.
using Copies = std::vector<std::vector<std::vector<std::int64_t>>>;

Copies copies_of(const std::vector<Axis>& axes) {
  Copies out;
  for (const Axis& axis : axes) {
    out.emplace_back(static_cast<std::size_t>(axis.padded ? axis.inner : 0));
    for (std::size_t k = 0; k < axis.sources.size(); ++k)
      if (axis.sources[k] >= 0) out.back()[static_cast<std::size_t>(axis.sources[k])].push_back(static_cast<std::int64_t>(k));
  }
  return out;
}

/// Calls f with the number of every padded line that is a copy of line (index) of the data.
template <class F>
void for_each_copy(const std::vector<Axis>& axes, const Copies& copies, const Extents& index, std::size_t axis, std::int64_t line, const F& f) {
  if (axis + 1 == axes.size()) return f(line);
  if (!axes[axis].padded) return for_each_copy(axes, copies, index, axis + 1, line * axes[axis].outer + index[axis], f);
  for (std::int64_t k : copies[axis][static_cast<std::size_t>(index[axis])]) for_each_copy(axes, copies, index, axis + 1, line * axes[axis].outer + k, f);
}

template <class T>
BELFRY_CLONES void add(const T* dy, T* dx, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] += dy[i];
}

template <class T>
void sum_copies(const std::vector<Axis>& axes, const Copies& copies, const T* dy, T* dx, std::int64_t first, std::int64_t past) {
  const Axis& last = axes.back();
  Extents index(axes.size());
  for (std::int64_t line = first; line < past; ++line) {
    std::int64_t left = line;
    for (std::size_t a = axes.size() - 1; a-- > 0; left /= axes[a].inner) index[a] = left % axes[a].inner;
    T* to = dx + line * last.inner;
    std::fill_n(to, last.inner, T{0});
    for_each_copy(axes, copies, index, 0, 0, [&](std::int64_t padded) {
      const T* from = dy + padded * last.outer;
      if (!last.padded) return add<T>(from, to, last.inner);
      for (std::int64_t i = 0; i < last.inner; ++i)
        for (std::int64_t k : copies.back()[static_cast<std::size_t>(i)]) to[i] += from[k];
    });
  }
}

Kernel gradient() {
  return {.name = "sum_lines", .op = "pad_gradient", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            std::vector<Axis> axes = axes_of(*r.attributes, r.outputs[0].shape, r.inputs[0].shape);
            std::int64_t n = r.outputs[0].elements(), lines = n == 0 ? 0 : n / axes.back().inner;
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, copies = copies_of(axes), threads = r.threads](const Arguments& a) {
                for_ranges(lines, n, threads, [&](std::int64_t first, std::int64_t past) { sum_copies<T>(axes, copies, a.in<T>(0), a.out<T>(0), first, past); });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> pad_cpu() { return {forward(), gradient()}; }

}  // namespace belfry
