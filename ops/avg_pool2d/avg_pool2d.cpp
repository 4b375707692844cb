#include <belfry/ops/avg_pool2d/avg_pool2d.h>

#include <algorithm>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

Sliding sliding(const Attributes& a, const Extents& x) {
  const Integers &window = a.integers("window"), &strides = a.integers("strides");
  return {x, window[0], window[1], strides.empty() ? window : strides, a.text("padding") == "same"};
}

/// Calls f(at_y, at_x, count) for every element under every window; `count` elements are under it.
template <class F>
void for_each_element(const Attributes& a, const Extents& x, F f) {
  Sliding s = sliding(a, x);
  std::size_t at_y = 0;
  for (std::int64_t n = 0; n < x[0]; ++n)
    for (std::int64_t p = 0; p < s.h.count; ++p)
      for (std::int64_t q = 0; q < s.w.count; ++q) {
        auto [top, bottom] = on_data(s.h, p, s.window_h, s.stride_h, x[1]);
        auto [left, right] = on_data(s.w, q, s.window_w, s.stride_w, x[2]);
        for (std::int64_t c = 0; c < x[3]; ++c, ++at_y)
          for (std::int64_t row = top; row < bottom; ++row)
            for (std::int64_t column = left; column < right; ++column)
              f(at_y, static_cast<std::size_t>(((n * x[1] + row) * x[2] + column) * x[3] + c), static_cast<double>((bottom - top) * (right - left)));
      }
}

/// `at` says where an element of `from` goes: to = Σ from / count.
template <class At>
void spread_means(const Call& c, const Extents& x, At at) {
  visit_float(c.dtype(), [&]<class T>() {
    auto from = c.inputs[0].as<T>();
    auto to = c.outputs[0].as<T>();
    std::vector<double> sums(to.size());
    for_each_element(c.attributes, x, [&](std::size_t at_y, std::size_t at_x, double count) {
      auto [source, target] = at(at_y, at_x);
      sums[target] += static_cast<double>(from[source]) / count;
    });
    std::transform(sums.begin(), sums.end(), to.begin(), [](double v) { return static_cast<T>(v); });
  });
}

void forward(const Call& c) {
  spread_means(c, c.inputs[0].type.shape, [](std::size_t at_y, std::size_t at_x) { return std::pair(at_x, at_y); });
}
void gradient(const Call& c) {
  spread_means(c, c.outputs[0].type.shape, [](std::size_t at_y, std::size_t at_x) { return std::pair(at_y, at_x); });
}

TensorType checked_output(InferContext& c, int x) {
  c.need_float(x);
  c.need_rank(x, 4);
  need_pair(c, "window");
  const Integers &window = c.attributes.integers("window"), &strides = c.attributes.integers("strides");
  if (!strides.empty()) need_pair(c, "strides");
  return {c.dtype(x), windows_over(c, c.shape(x), window[0], window[1], strides.empty() ? window : strides, c.shape(x)[3])};
}

double additions(const LocalType& y, const Attributes& a) { return static_cast<double>(y.elements()) * static_cast<double>(a.integers("window")[0]) * static_cast<double>(a.integers("window")[1]); }

void need_picture(Value x, const char* what, SourceLine at) {
  if (x.rank() != 4) throw UserError("[" + std::string(what) + "] x must have 4 axes (n, h, w, c), not " + to_string(x.type()) + (at.file ? " at " + at.text() : ""));
}

}  // namespace

std::vector<OpDef> avg_pool2d_defs() {
  std::vector<AttributeDef> attributes = {{"window", Integers{2, 2}}, {"strides", Integers{}}, AttributeDef("padding", "valid").one_of({"same", "valid"})};
  std::vector<OpDef> out;
  out.push_back({.name = "avg_pool2d",
                 .attributes = attributes,
                 .inputs = {"x"},
                 .infer = [](InferContext& c) { return std::vector<TensorType>{checked_output(c, 0)}; },
                 .reference = forward,
                 .gradient = [](GradientContext& g) { return std::vector<Value>{emit("avg_pool2d_gradient", {g.output_gradient(), g.input(0)}, g.attributes, {})}; },
                 .split = row_by_row(0, 0),
                 .flops = [](auto, auto out, const Attributes& a) { return additions(out[0], a); }});
  out.push_back({.name = "avg_pool2d_gradient",
                 .attributes = attributes,
                 .inputs = {"dy", shape_only("x")},
                 .outputs = {"dx"},
                 .infer = [](InferContext& c) {
                   TensorType y = checked_output(c, 1);
                   if (c.type(0) != y) c.fail("dy must be " + to_string(y));
                   return std::vector<TensorType>{c.type(1)};
                 },
                 .reference = gradient,
                 .gradient = [](GradientContext& g) { return std::vector<Value>{emit("avg_pool2d", {g.output_gradient()}, g.attributes, {}), {}}; },
                 .split = row_by_row(0, 0),
                 .flops = [](auto in, auto, const Attributes& a) { return additions(in[0], a); }});
  return out;
}

Value avg_pool2d(Value x, const AvgPool2dOptions& o, SourceLine at) {
  return emit("avg_pool2d", {x}, {{"window", o.window}, {"strides", o.strides}, {"padding", o.padding}}, at);
}

Value global_avg_pool2d(Value x, bool keep, SourceLine at) {
  need_picture(x, "global_avg_pool2d", at);
  return reduce_mean(x, {{1, 2}, keep}, at);
}

Value global_max_pool2d(Value x, bool keep, SourceLine at) {
  need_picture(x, "global_max_pool2d", at);
  return reduce_max(x, {{1, 2}, keep}, at);
}

}  // namespace belfry
