#include <belfry/ops/resize/resize.h>

#include <algorithm>

#include <belfry/ops/linear_pair.h>
#include <belfry/ops/resize/taps.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

/// Calls f(at_y, at_x, weight) for the four pixels that each one of y looks at; offsets of elements.
template <class F>
void for_each_weight(const Attributes& a, const Extents& x, const Extents& y, F f) {
  bool nearest = a.text("method") == "nearest";
  std::vector<Tap> h = taps(x[1], y[1], nearest), w = taps(x[2], y[2], nearest);
  std::size_t at_y = 0;
  auto at = [&](std::int64_t n, std::int64_t row, std::int64_t column, std::int64_t c) { return static_cast<std::size_t>(((n * x[1] + row) * x[2] + column) * x[3] + c); };
  for (std::int64_t n = 0; n < x[0]; ++n)
    for (const Tap& p : h)
      for (const Tap& q : w)
        for (std::int64_t c = 0; c < x[3]; ++c, ++at_y) {
          f(at_y, at(n, p.low, q.low, c), (1 - p.weight) * (1 - q.weight));
          if (nearest) continue;
          f(at_y, at(n, p.low, q.high, c), (1 - p.weight) * q.weight);
          f(at_y, at(n, p.high, q.low, c), p.weight * (1 - q.weight));
          f(at_y, at(n, p.high, q.high, c), p.weight * q.weight);
        }
}

/// `at` says which element goes where: to = Σ weight · from.
template <class At>
void weigh(const Call& c, const Extents& x, const Extents& y, At at) {
  visit_float(c.dtype(), [&]<class T>() {
    auto from = c.inputs[0].as<T>();
    auto to = c.outputs[0].as<T>();
    std::vector<double> sums(to.size());
    for_each_weight(c.attributes, x, y, [&](std::size_t at_y, std::size_t at_x, double weight) {
      auto [source, target] = at(at_y, at_x);
      sums[target] += weight * static_cast<double>(from[source]);
    });
    std::transform(sums.begin(), sums.end(), to.begin(), [](double v) { return static_cast<T>(v); });
  });
}

void forward(const Call& c) {
  weigh(c, c.inputs[0].type.shape, c.outputs[0].type.shape, [](std::size_t at_y, std::size_t at_x) { return std::pair(at_x, at_y); });
}
void gradient(const Call& c) {
  weigh(c, c.outputs[0].type.shape, c.inputs[0].type.shape, [](std::size_t at_y, std::size_t at_x) { return std::pair(at_y, at_x); });
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
