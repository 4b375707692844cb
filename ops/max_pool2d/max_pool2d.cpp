#include <belfry/ops/max_pool2d/max_pool2d.h>

#include <algorithm>
#include <limits>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

Sliding sliding(const Attributes& a, const Extents& x) {
  const Integers &window = a.integers("window"), &strides = a.integers("strides");
  return {x, window[0], window[1], strides.empty() ? window : strides, a.text("padding") == "same"};
}

/// Calls f(at_y, at_x, position) for every element of every window, row-major.
template <class F>
void for_each_element(const Attributes& a, const Extents& x, F f) {
  Sliding s = sliding(a, x);
  std::size_t at_y = 0;
  for (std::int64_t n = 0; n < x[0]; ++n)
    for (std::int64_t p = 0; p < s.h.count; ++p)
      for (std::int64_t q = 0; q < s.w.count; ++q)
        for (std::int64_t c = 0; c < x[3]; ++c, ++at_y)
          for (std::int64_t i = 0; i < s.window_h; ++i)
            for (std::int64_t j = 0; j < s.window_w; ++j) {
              std::int64_t row = p * s.stride_h - s.h.before + i, column = q * s.stride_w - s.w.before + j;
              if (row < 0 || row >= x[1] || column < 0 || column >= x[2]) continue;
              f(at_y, static_cast<std::size_t>(((n * x[1] + row) * x[2] + column) * x[3] + c), static_cast<std::uint8_t>(i * s.window_w + j));
            }
}

void forward(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    auto y = c.outputs[0].as<T>();
    std::vector<bool> begun(y.size());
    for_each_element(c.attributes, c.inputs[0].type.shape, [&](std::size_t at_y, std::size_t at_x, std::uint8_t position) {
      T v = x[at_x];
      bool nan = v != v && y[at_y] == y[at_y];
      if (begun[at_y] && !(v > y[at_y]) && !nan) return;
      begun[at_y] = true;
      y[at_y] = v;
      if (c.outputs[1].data) c.outputs[1].as<std::uint8_t>()[at_y] = position;
    });
  });
}

void gradient(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    auto dy = c.inputs[0].as<T>();
    auto index = c.inputs[1].as<std::uint8_t>();
    auto dx = c.outputs[0].as<T>();
    std::fill(dx.begin(), dx.end(), T{0});
    for_each_element(c.attributes, c.outputs[0].type.shape, [&](std::size_t at_y, std::size_t at_x, std::uint8_t position) {
      if (index[at_y] == position) dx[at_x] += dy[at_y];
    });
  });
}

Shape checked_output(InferContext& c, int x) {
  c.need_rank(x, 4);
  need_pair(c, "window");
  const Integers &window = c.attributes.integers("window"), &strides = c.attributes.integers("strides");
  if (!strides.empty()) need_pair(c, "strides");
  if (window[0] > 256 || window[1] > 256 || window[0] * window[1] > 256) c.fail("a window of more than 256 elements has positions that u8 does not hold");
  return windows_over(c, c.shape(x), window[0], window[1], strides.empty() ? window : strides, c.shape(x)[3]);
}

/// Every element is compared once.
double comparisons(const LocalType& y, const Attributes& a) { return static_cast<double>(y.elements()) * static_cast<double>(a.integers("window")[0] * a.integers("window")[1]); }

/// dy leads; the index follows it by rows.
Split split_gradient(const SplitContext& c) {
  if (c.states[0] == rows(0) || c.states[1] == rows(0)) return {{rows(0), rows(0), c.states[2]}, {rows(0)}};
  auto whole = [](SplitState s) { return s.is_per_tower() ? s : kReplicated; };
  bool per_tower = c.states[0].is_per_tower() || c.states[1].is_per_tower();
  return {{whole(c.states[0]), whole(c.states[1]), c.states[2]}, {per_tower ? kPerTower : kReplicated}};
}

}  // namespace

std::vector<OpDef> max_pool2d_defs() {
  std::vector<AttributeDef> attributes = {{"window", Integers{2, 2}}, {"strides", Integers{}}, AttributeDef("padding", "valid").one_of({"same", "valid"})};
  std::vector<OpDef> out;
  out.push_back({.name = "max_pool2d",
                 .attributes = attributes,
                 .inputs = {"x"},
                 .outputs = {"y", optional_output("index")},
                 .infer = [](InferContext& c) {
                   c.need_float(0);
                   Shape y = checked_output(c, 0);
                   return std::vector<TensorType>{{c.dtype(0), y}, {u8, y}};
                 },
                 .reference = forward,
                 .gradient = [](GradientContext& g) {
                   return std::vector<Value>{emit("max_pool2d_gradient", {g.output_gradient(), g.output(1), g.input(0)}, g.attributes, {})};
                 },
                 .split = row_by_row(0, 0),
                 .flops = [](auto, auto out, const Attributes& a) { return comparisons(out[0], a); }});
  out.push_back({.name = "max_pool2d_gradient",
                 .attributes = attributes,
                 .inputs = {"dy", "index", shape_only("x")},
                 .outputs = {"dx"},
                 .infer = [](InferContext& c) {
                   c.need_float(0);
                   Shape y = checked_output(c, 2);
                   if (c.type(0) != TensorType{c.dtype(2), y}) c.fail("dy must be " + to_string(TensorType{c.dtype(2), y}));
                   if (c.type(1) != TensorType{u8, y}) c.fail("the index must be " + to_string(TensorType{u8, y}));
                   return std::vector<TensorType>{c.type(2)};
                 },
                 .reference = gradient,
                 .gradient = no_gradient("second derivatives of pooling are in no net here"),
                 .split = split_gradient,
                 .flops = [](auto in, auto, const Attributes& a) { return comparisons(in[0], a); }});
  return out;
}

Value max_pool2d(Value x, const MaxPool2dOptions& o, SourceLine at) {
  return emit("max_pool2d", {x}, {{"window", o.window}, {"strides", o.strides}, {"padding", o.padding}}, at);
}

}  // namespace belfry
