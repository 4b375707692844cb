#include <belfry/ops/pad/pad.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/loops.h>
#include <belfry/ops/pad/mirror.h>

namespace belfry {

namespace {

/// Calls f(at_y, at_x) for every element of y; at_x is -1 where the value stands.
template <class F>
void for_each_pair(const Attributes& a, const Extents& x, const Extents& y, F f) {
  const Integers& before = a.integers("before");
  PadMode mode = pad_mode(a.text("mode"));
  std::size_t at_y = 0;
  for_each_index(y, [&](const Extents& index) {
    std::int64_t at_x = 0;
    for (std::size_t i = 0; i < x.size() && at_x >= 0; ++i) {
      std::int64_t k = unpadded(index[i], before[i], x[i], mode);
      at_x = k < 0 ? -1 : at_x * x[i] + k;
    }
    f(at_y++, at_x);
  });
}

void forward(const Call& c) {
  visit_dtype(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    auto y = c.outputs[0].as<T>();
    const T value = static_cast<T>(c.attributes.real("value"));
    for_each_pair(c.attributes, c.inputs[0].type.shape, c.outputs[0].type.shape,
                  [&](std::size_t at_y, std::int64_t at_x) { y[at_y] = at_x < 0 ? value : x[static_cast<std::size_t>(at_x)]; });
  });
}

void gradient(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    auto dy = c.inputs[0].as<T>();
    auto dx = c.outputs[0].as<T>();
    std::vector<double> sums(dx.size());
    for_each_pair(c.attributes, c.outputs[0].type.shape, c.inputs[0].type.shape, [&](std::size_t at_y, std::int64_t at_x) {
      if (at_x >= 0) sums[static_cast<std::size_t>(at_x)] += static_cast<double>(dy[at_y]);
    });
    std::transform(sums.begin(), sums.end(), dx.begin(), [](double v) { return static_cast<T>(v); });
  });
}

/// The value must be one of the dtype's.
void check_value(InferContext& c) {
  const double value = c.attributes.real("value");
  if (!is_value_of(c.dtype(0), value)) c.fail("the value " + to_string(AttributeValue(value)) + " is none of " + std::string(name_of(c.dtype(0))));
}

Shape padded(InferContext& c, const Shape& x) {
  const Integers &before = c.attributes.integers("before"), &after = c.attributes.integers("after");
  if (before.size() != x.size() || after.size() != x.size())
    c.fail("before and after need one size for each of the " + std::to_string(x.size()) + " axes; they have " + std::to_string(before.size()) + " and " + std::to_string(after.size()));
  PadMode mode = pad_mode(c.attributes.text("mode"));
  Shape y = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (before[i] == 0 && after[i] == 0) continue;
    const std::string axis = "axis " + std::to_string(i);
    if (x[i].symbolic()) c.fail(axis + " has rows, " + to_string(x[i]) + " of them: it takes no padding");
    std::int64_t reach = mode == PadMode::constant ? std::numeric_limits<std::int64_t>::max() : x[i].factor - (mode == PadMode::reflect);
    if (before[i] > reach || after[i] > reach)
      c.fail(axis + " of size " + to_string(x[i]) + " cannot be mirrored into a padding of " + std::to_string(std::max(before[i], after[i])) + "; mode \"" + c.attributes.text("mode") + "\" reaches " + std::to_string(std::max<std::int64_t>(reach, 0)));
    std::int64_t size = 0;
    if (__builtin_add_overflow(x[i].factor, before[i] + after[i], &size)) c.fail(axis + " would be too long");
    y[i] = size;
  }
  return y;
}

}  // namespace

std::vector<OpDef> pad_defs() {
  std::vector<AttributeDef> attributes = {AttributeDef("before", AttributeKind::integers).between(0, 0x7fffffff), AttributeDef("after", AttributeKind::integers).between(0, 0x7fffffff),
                                          AttributeDef("mode", "constant").one_of({"constant", "reflect", "symmetric"}), {"value", 0.0}};
  std::vector<OpDef> out;
  out.push_back({.name = "pad",
                 .attributes = attributes,
                 .inputs = {"x"},
                 .infer = [](InferContext& c) {
                   check_value(c);
                   return std::vector<TensorType>{{c.dtype(0), padded(c, c.shape(0))}};
                 },
                 .reference = forward,
                 .gradient = [](GradientContext& g) { return std::vector<Value>{emit("pad_gradient", {g.output_gradient(), g.input(0)}, g.attributes, {})}; },
                 .split = row_by_row(),
                 .exact = true,
                 .precision = Precision::follow});
  out.push_back({.name = "pad_gradient",
                 .attributes = attributes,
                 .inputs = {"dy", shape_only("x")},
                 .outputs = {"dx"},
                 .infer = [](InferContext& c) {
                   c.need_float(0);
                   TensorType y = {c.dtype(1), padded(c, c.shape(1))};
                   if (c.type(0) != y) c.fail("dy must be " + to_string(y));
                   return std::vector<TensorType>{c.type(1)};
                 },
                 .reference = gradient,
                 .gradient = [](GradientContext& g) {
                   Attributes zeros = g.attributes;
                   zeros.set("value", 0.0);
                   return std::vector<Value>{emit("pad", {g.output_gradient()}, zeros, {}), {}};
                 },
                 .split = row_by_row(),
                 .flops = [](auto in, auto, const Attributes&) { return static_cast<double>(in[0].elements()); },
                 .precision = Precision::follow});
  return out;
}

Value pad(Value x, const PadOptions& o, SourceLine at) {
  return emit("pad", {x}, {{"before", o.before}, {"after", o.after}, {"mode", o.mode}, {"value", o.value}}, at);
}

}  // namespace belfry
