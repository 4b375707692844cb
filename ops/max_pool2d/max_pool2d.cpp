#include <belfry/ops/max_pool2d/max_pool2d.h>

#include <algorithm>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/pools.h>

namespace belfry {

namespace {

void forward(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    auto y = c.outputs[0].as<T>();
    std::vector<bool> begun(y.size());
    for_each_pooled(c.attributes, c.inputs[0].type.shape, [&](std::size_t at_y, std::size_t at_x, std::int64_t position, std::int64_t) {
      T v = x[at_x];
      bool nan = v != v && y[at_y] == y[at_y];
      if (begun[at_y] && !(v > y[at_y]) && !nan) return;
      begun[at_y] = true;
      y[at_y] = v;
      if (c.outputs[1].data) c.outputs[1].as<std::uint8_t>()[at_y] = static_cast<std::uint8_t>(position);
    });
  });
}

void gradient(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    auto dy = c.inputs[0].as<T>();
    auto index = c.inputs[1].as<std::uint8_t>();
    auto dx = c.outputs[0].as<T>();
    std::fill(dx.begin(), dx.end(), T{0});
    for_each_pooled(c.attributes, c.outputs[0].type.shape, [&](std::size_t at_y, std::size_t at_x, std::int64_t position, std::int64_t) {
      if (index[at_y] == position) dx[at_x] += dy[at_y];
    });
  });
}

TensorType checked_output(InferContext& c, int x) {
  TensorType y = pooled(c, x);
  const Integers& window = c.attributes.integers("window");
  if (window[0] * window[1] > 256) c.fail("a window of more than 256 elements has positions that u8 does not hold");
  return y;
}

/// dy leads; the index follows it by rows.
Split split_gradient(const SplitContext& c) {
  if (c.states[0] == rows(0) || c.states[1] == rows(0)) return {{rows(0), rows(0), c.states[2]}, {rows(0)}};
  auto whole = [](SplitState s) { return s.is_per_tower() ? s : kReplicated; };
  bool per_tower = c.states[0].is_per_tower() || c.states[1].is_per_tower();
  return {{whole(c.states[0]), whole(c.states[1]), c.states[2]}, {per_tower ? kPerTower : kReplicated}};
}

}  // namespace

std::vector<OpDef> max_pool2d_defs() {
  std::vector<OpDef> out;
  out.push_back({.name = "max_pool2d",
                 .attributes = pool_attributes(),
                 .inputs = {"x"},
                 .outputs = {"y", optional_output("index")},
                 .infer = [](InferContext& c) {
                   TensorType y = checked_output(c, 0);
                   return std::vector<TensorType>{y, {u8, y.shape}};
                 },
                 .reference = forward,
                 .gradient = [](GradientContext& g) {
                   return std::vector<Value>{emit("max_pool2d_gradient", {g.output_gradient(), g.output(1), g.input(0)}, g.attributes, {})};
                 },
                 .split = row_by_row(0, 0),
                 .flops = [](auto, auto out, const Attributes& a) { return pool_flops(out[0], a); },
                 .precision = Precision::follow});
  out.push_back({.name = "max_pool2d_gradient",
                 .attributes = pool_attributes(),
                 .inputs = {"dy", "index", shape_only("x")},
                 .outputs = {"dx"},
                 .infer = [](InferContext& c) {
                   TensorType y = checked_output(c, 2), index = {u8, y.shape};
                   if (c.type(0) != y) c.fail("dy must be " + to_string(y));
                   if (c.type(1) != index) c.fail("the index must be " + to_string(index));
                   return std::vector<TensorType>{c.type(2)};
                 },
                 .reference = gradient,
                 .gradient = no_gradient("second derivatives of pooling are in no net here"),
                 .split = split_gradient,
                 .flops = [](auto in, auto, const Attributes& a) { return pool_flops(in[0], a); },
                 .precision = Precision::follow});
  return out;
}

Value max_pool2d(Value x, const MaxPool2dOptions& o, SourceLine at) {
  return emit("max_pool2d", {x}, {{"window", o.window}, {"strides", o.strides}, {"padding", o.padding}, {"dilations", o.dilations}, {"pads", o.pads}}, at);
}

}  // namespace belfry
