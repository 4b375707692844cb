// What pools share: their attributes, the shape they give, and the walk over their windows.
#pragma once

#include <vector>

#include <belfry/ops/windows.h>

namespace belfry {

inline std::vector<AttributeDef> pool_attributes() {
  return {{"window", Integers{2, 2}}, {"strides", Integers{}}, AttributeDef("padding", "valid").one_of({"same", "valid"}), {"dilations", Integers{1, 1}}, {"pads", Integers{}}};
}

/// No strides: those of the window.
inline const Integers& pool_strides(const Attributes& a) { return a.integers(a.integers("strides").empty() ? "window" : "strides"); }

inline Sliding pool_sliding(const Attributes& a, const Extents& x) {
  const Integers& window = a.integers("window");
  return {x, window[0], window[1], pool_strides(a), a};
}

/// The type of y for input `x`, after all checks.
inline TensorType pooled(InferContext& c, int x) {
  c.need_float(x);
  c.need_rank(x, 4);
  need_pair(c, "window");
  if (!c.attributes.integers("strides").empty()) need_pair(c, "strides");
  need_pair(c, "dilations");
  const Integers &window = c.attributes.integers("window"), &dilations = c.attributes.integers("dilations");
  Shape y = windows_over(c, c.shape(x), window[0], window[1], pool_strides(c.attributes), c.shape(x)[3], dilations);
  for (std::size_t k : {0, 1})
    if (std::int64_t size = c.shape(x)[k + 1].factor; window[k] > 1 && dilations[k] > size)
      c.fail("dilations of " + std::to_string(dilations[k]) + " step over a " + (k ? "width" : "height") + " of " + std::to_string(size) + ": a window could lie on padding alone");
  return {c.dtype(x), y};
}

/// Every element under every window once.
inline double pool_flops(const LocalType& y, const Attributes& a) {
  const Integers& window = a.integers("window");
  return static_cast<double>(y.elements()) * static_cast<double>(window[0]) * static_cast<double>(window[1]);
}

/// The part of window (p, q) that lies on a picture: rows [top, bottom) and columns [left, right) of the window.
struct Patch {
  Patch(const Sliding& s, const Extents& x, std::int64_t p, std::int64_t q)
      : first_row(p * s.stride_h - s.h.before), first_column(q * s.stride_w - s.w.before), down(s.dilation_h), right_by(s.dilation_w), top(first(first_row, down)),
        bottom(past(first_row, down, s.window_h, x[1])), left(first(first_column, right_by)), right(past(first_column, right_by, s.window_w, x[2])), width(x[2]), window_w(s.window_w) {}
  std::int64_t first_row, first_column, down, right_by, top, bottom, left, right, width, window_w;

  std::int64_t count() const { return (bottom - top) * (right - left); }
  /// Calls f(pixel of the picture, position in the window), row-major both.
  template <class F>
  void for_each(const F& f) const {
    for (std::int64_t i = top; i < bottom; ++i)
      for (std::int64_t j = left; j < right; ++j) f((first_row + i * down) * width + first_column + j * right_by, i * window_w + j);
  }

 private:
  /// Elements of a window that begins at `at` and goes by `by`: the first on the data, and the one past the last.
  static std::int64_t first(std::int64_t at, std::int64_t by) { return at < 0 ? (by - 1 - at) / by : 0; }
  static std::int64_t past(std::int64_t at, std::int64_t by, std::int64_t window, std::int64_t size) { return std::min(window, (size - at + by - 1) / by); }
};

/// The windows of lines [first, past), of which a picture has s.h.count: f(patch, offset of its picture in x, offset of its result in y).
template <class F>
void for_each_patch(const Sliding& s, const Extents& x, std::int64_t first, std::int64_t past, const F& f) {
  for (std::int64_t line = first; line < past; ++line)
    for (std::int64_t q = 0; q < s.w.count; ++q) f(Patch(s, x, line % s.h.count, q), line / s.h.count * x[1] * x[2] * x[3], (line * s.w.count + q) * x[3]);
}

/// For references: f(at_y, at_x, position, count) for every element under every window, of which `count` lie on the data.
template <class F>
void for_each_pooled(const Attributes& a, const Extents& x, const F& f) {
  Sliding s = pool_sliding(a, x);
  for_each_patch(s, x, 0, x[0] * s.h.count, [&](const Patch& patch, std::int64_t picture, std::int64_t y) {
    for (std::int64_t c = 0; c < x[3]; ++c)
      patch.for_each([&](std::int64_t pixel, std::int64_t position) { f(static_cast<std::size_t>(y + c), static_cast<std::size_t>(picture + pixel * x[3] + c), position, patch.count()); });
  });
}

}  // namespace belfry
