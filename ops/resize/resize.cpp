#include <belfry/ops/resize/resize.h>

#include <algorithm>

#include <belfry/ops/linear_pair.h>
#include <belfry/ops/resize/taps.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

/// The four pixels of x that one of y looks at, as offsets of elements: of two rows the columns left and right.
struct Corners {
  std::size_t top_left, top_right, bottom_left, bottom_right;
  double down, right;  ///< weights of the lower row and of the right column
};

/// Calls f(at_y, corners) for every element of y.
template <class F>
void for_each_element(const Attributes& a, const Extents& x, const Extents& y, F f) {
  bool nearest = a.text("method") == "nearest";
  std::vector<Tap> h = taps(x[1], y[1], nearest), w = taps(x[2], y[2], nearest);
  std::size_t at_y = 0;
  auto at = [&](std::int64_t n, std::int64_t row, std::int64_t column, std::int64_t c) { return static_cast<std::size_t>(((n * x[1] + row) * x[2] + column) * x[3] + c); };
  for (std::int64_t n = 0; n < x[0]; ++n)
    for (const Tap& p : h)
      for (const Tap& q : w)
        for (std::int64_t c = 0; c < x[3]; ++c, ++at_y)
          f(at_y, Corners{at(n, p.low, q.low, c), at(n, p.low, q.high, c), at(n, p.high, q.low, c), at(n, p.high, q.high, c), p.weight, q.weight});
}

/// TensorFlow's formula, also of what is infinite.
void forward(const Call& c) {
  bool nearest = c.attributes.text("method") == "nearest";
  visit_float(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    auto y = c.outputs[0].as<T>();
    auto between = [](double a, double b, double weight) { return a + (b - a) * weight; };
    for_each_element(c.attributes, c.inputs[0].type.shape, c.outputs[0].type.shape, [&](std::size_t at_y, const Corners& k) {
      auto row = [&](std::size_t left, std::size_t right) { return between(static_cast<double>(x[left]), static_cast<double>(x[right]), k.right); };
      y[at_y] = nearest ? x[k.top_left] : static_cast<T>(between(row(k.top_left, k.top_right), row(k.bottom_left, k.bottom_right), k.down));
    });
  });
}

void gradient(const Call& c) {
  bool nearest = c.attributes.text("method") == "nearest";
  visit_float(c.dtype(), [&]<class T>() {
    auto dy = c.inputs[0].as<T>();
    auto dx = c.outputs[0].as<T>();
    std::vector<double> sums(dx.size());
    for_each_element(c.attributes, c.outputs[0].type.shape, c.inputs[0].type.shape, [&](std::size_t at_y, const Corners& k) {
      double d = static_cast<double>(dy[at_y]);
      sums[k.top_left] += (1 - k.down) * (1 - k.right) * d;
      if (nearest) return;
      sums[k.top_right] += (1 - k.down) * k.right * d;
      sums[k.bottom_left] += k.down * (1 - k.right) * d;
      sums[k.bottom_right] += k.down * k.right * d;
    });
    std::transform(sums.begin(), sums.end(), dx.begin(), [](double v) { return static_cast<T>(v); });
  });
}

TensorType checked_output(InferContext& c, int x) {
  c.need_float(x);
  c.need_rank(x, 4);
  need_pair(c, "size");
  const Shape& s = c.shape(x);
  if (s[1].symbolic() || s[2].symbolic() || s[3].symbolic()) c.fail("height, width and channels are fixed sizes; rows lie on axis 0");
  if (s[1].factor < 1 || s[2].factor < 1) c.fail("a picture without pixels has none to look at");
  need_size(c, std::max(s[1].factor, s[2].factor));
  const Integers& size = c.attributes.integers("size");
  return {c.dtype(x), {s[0], size[0], size[1], s[3]}};
}

double flops(const LocalType& y, const Attributes& a) { return static_cast<double>(y.elements()) * (a.text("method") == "nearest" ? 1 : 8); }

}  // namespace

std::vector<OpDef> resize_defs() {
  std::vector<AttributeDef> attributes = {{"size", AttributeKind::integers}, AttributeDef("method", "bilinear").one_of({"bilinear", "nearest"})};
  return linear_pair({"resize", attributes, checked_output, forward, gradient, flops});
}

Value resize(Value x, Integers size, const ResizeOptions& o, SourceLine at) { return emit("resize", {x}, {{"size", std::move(size)}, {"method", o.method}}, at); }

}  // namespace belfry
