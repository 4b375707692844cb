#include <belfry/ops/layer_norm/layer_norm.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/layer_norm/formulas.h>
#include <belfry/ops/norms.h>

namespace belfry {

namespace {

bool is_rms(const Attributes& a) { return a.find("rms") && a.flag("rms"); }

bool given(const Call& c, std::size_t i) { return i < c.inputs.size() && c.inputs[i].data; }

/// Calls f(position, channel) for the elements of one group of one example.
template <class F>
void for_each_of(const NormLayout& l, std::int64_t e, std::int64_t group, F f) {
  for (std::int64_t place = 0; place < l.places; ++place)
    for (std::int64_t k = 0; k < l.width; ++k) f(static_cast<std::size_t>(l.run(e, place, group) + k), static_cast<std::size_t>(group * l.width + k));
}

void forward_reference(const Call& c) {
  NormLayout l(c.attributes, c.inputs[0].type.shape);
  double epsilon = c.attributes.real("epsilon"), n = static_cast<double>(l.places * l.width);
  ConstView none{{f32, {0}}, nullptr}, gamma = given(c, 1) ? c.inputs[1] : none, beta = given(c, 2) ? c.inputs[2] : none;
  visit_float(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    auto y = c.outputs[0].as<T>();
    for (std::int64_t e = 0; e < l.examples; ++e)
      for (std::int64_t group = 0; group < l.groups; ++group) {
        double mean = 0, variance = 0;
        if (!is_rms(c.attributes)) for_each_of(l, e, group, [&](std::size_t i, std::size_t) { mean += static_cast<double>(x[i]) / n; });
        for_each_of(l, e, group, [&](std::size_t i, std::size_t) { variance += std::pow(static_cast<double>(x[i]) - mean, 2) / n; });
        double inverse = 1 / std::sqrt(variance + epsilon);
        for_each_of(l, e, group, [&](std::size_t i, std::size_t k) {
          y[i] = static_cast<T>((static_cast<double>(x[i]) - mean) * inverse * channel<T>(gamma, k, 1) + channel<T>(beta, k, 0));
        });
        auto at = static_cast<std::size_t>(e * l.groups + group);
        if (c.outputs[1].data) c.outputs[1].as<T>()[at] = static_cast<T>(mean);
        if (c.outputs[2].data) c.outputs[2].as<T>()[at] = static_cast<T>(inverse);
      }
  });
}

/// dx = r·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·gamma; with `rms` without the second term.
void gradient_reference(const Call& c) {
  NormLayout l(c.attributes, c.inputs[0].type.shape);
  double n = static_cast<double>(l.places * l.width);
  ConstView gamma = given(c, 4) ? c.inputs[4] : ConstView{{f32, {0}}, nullptr};
  std::vector<double> dgamma(static_cast<std::size_t>(l.channels())), dbeta = dgamma;
  visit_float(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>(), mean = c.inputs[1].as<T>(), inverse = c.inputs[2].as<T>(), dy = c.inputs[3].as<T>();
    auto dx = c.outputs[0].as<T>();
    for (std::int64_t e = 0; e < l.examples; ++e)
      for (std::int64_t group = 0; group < l.groups; ++group) {
        auto at = static_cast<std::size_t>(e * l.groups + group);
        double r = static_cast<double>(inverse[at]), sum = 0, product = 0;
        auto normal = [&](std::size_t i) { return (static_cast<double>(x[i]) - static_cast<double>(mean[at])) * r; };
        for_each_of(l, e, group, [&](std::size_t i, std::size_t k) {
          double d = static_cast<double>(dy[i]), g = d * channel<T>(gamma, k, 1);
          dgamma[k] += d * normal(i);
          dbeta[k] += d;
          sum += g / n;
          product += g * normal(i) / n;
        });
        if (is_rms(c.attributes)) sum = 0;
        for_each_of(l, e, group, [&](std::size_t i, std::size_t k) {
          dx[i] = static_cast<T>(r * (static_cast<double>(dy[i]) * channel<T>(gamma, k, 1) - sum - normal(i) * product));
        });
      }
    for (std::size_t k = 0; k < dgamma.size(); ++k) {
      if (c.outputs[1].data) c.outputs[1].as<T>()[k] = static_cast<T>(dgamma[k]);
      if (c.outputs[2].data) c.outputs[2].as<T>()[k] = static_cast<T>(dbeta[k]);
    }
  });
}

/// The first axis of x that the moments are taken over.
int first_axis(const Attributes& a, int rank) { return a.find("groups") ? 1 : from_front(a.integer("axis"), rank); }

struct Types {
  TensorType moments, parameters;
};

/// Of the moments and of gamma; checks the attributes.
Types types_of(InferContext& c) {
  c.need_float(0);
  const Shape& x = c.shape(0);
  if (c.attributes.find("groups")) {
    std::int64_t groups = c.attributes.integer("groups");
    if (c.rank(0) < 2 || x.back().symbolic()) c.fail("x needs a batch axis and a last axis of fixed size, the channels");
    if (groups < 1 || x.back().factor < 1 || x.back().factor % groups != 0) c.fail(fmt::format("{} channels cannot be cut into {} equal groups", x.back().factor, groups));
    return {{c.dtype(0), {x[0], groups}}, {c.dtype(0), {x.back()}}};
  }
  int axis = c.axis("axis");
  Shape lead(x.begin(), x.begin() + axis), rest(x.begin() + axis, x.end());
  return {{c.dtype(0), lead}, {c.dtype(0), rest}};
}

std::vector<TensorType> infer_forward(InferContext& c) {
  Types t = types_of(c);
  for (int i : {1, 2})
    if (c.has(i) && c.type(i) != t.parameters) c.fail("gamma and beta must be " + to_string(t.parameters));
  TensorType y = c.type(0);
  if (const std::string& half = c.attributes.text(kRoundedTo); !half.empty()) {
    if (y.dtype != f32) c.fail(fmt::format("rounds y to {} where x is f32", half));
    y.dtype = half == name_of(f16) ? f16 : bf16;
  }
  return {y, t.moments, t.moments};
}

/// The gradient's attributes: how y is rounded is not among them.
Attributes unrounded(const Attributes& a) {
  Attributes out;
  for (const auto& [name, value] : a.entries())
    if (name != kRoundedTo) out.set(name, value);
  return out;
}

std::vector<TensorType> infer_gradient(InferContext& c) {
  Types t = types_of(c);
  if (c.type(3) != c.type(0)) c.fail("dy must have the type of x");
  if (c.type(1) != t.moments || c.type(2) != t.moments) c.fail("mean and inverse deviation must be " + to_string(t.moments));
  if (c.has(4) && c.type(4) != t.parameters) c.fail("gamma must be " + to_string(t.parameters));
  return {c.type(0), t.parameters, t.parameters};
}

/// Rows of x stay unless they are normalised over; then they move to another row axis before, or x is read whole.
SplitState rows_before(const SplitContext& c, SplitState s) {
  int first = first_axis(c.attributes, static_cast<int>(c.inputs[0].shape.size()));
  if (s.is_partial()) s = kReplicated;
  if (!s.is_rows() || s.axis < first) return s;
  for (int other : symbolic_axes(c.inputs[0].shape))
    if (other < first) return rows(other);
  return kReplicated;
}

/// Inputs in `by_example` follow the rows of x; the others are read whole. What each tower has of its own stays so.
Split split(const SplitContext& c, const std::vector<bool>& by_example, const std::vector<SplitState>& of_rows) {
  SplitState s = c.states[0];
  for (std::size_t i = 0; i < c.states.size() && !s.is_rows(); ++i)
    if (by_example[i] && c.states[i].is_rows()) s = c.states[i];
  s = rows_before(c, s);
  if (!s.is_rows()) s = kReplicated;
  bool sums = s.is_rows() && of_rows.back().is_partial(), per_tower = false;
  Split out;
  for (std::size_t i = 0; i < c.states.size(); ++i) {
    bool own = c.states[i].is_per_tower() && !sums;
    out.reads.push_back(own ? kPerTower : by_example[i] ? s : kReplicated);
    per_tower |= own;
  }
  for (SplitState g : of_rows) out.gives.push_back(!s.is_rows() ? per_tower ? kPerTower : kReplicated : g.is_rows() ? s : g);
  return out;
}

Split split_forward(const SplitContext& c) { return split(c, {true, false, false}, {rows(0), rows(0), rows(0)}); }
Split split_gradient(const SplitContext& c) { return split(c, {true, true, true, true, false}, {rows(0), partial(Reduction::sum), partial(Reduction::sum)}); }

double flops(std::span<const LocalType> in, std::span<const LocalType>, const Attributes&) { return 8.0 * static_cast<double>(in[0].elements()); }

OpDef forward_def(const char* name, std::vector<AttributeDef> attributes, const std::string& gradient) {
  attributes.push_back(AttributeDef(kRoundedTo, "").one_of({"", "f16", "bf16"}));
  return {.name = name,
          .attributes = std::move(attributes),
          .inputs = {"x", wide_input(optional_input("gamma")), wide_input(optional_input("beta"))},
          .outputs = {"y", wide_output(optional_output("mean")), wide_output(optional_output("inverse_deviation"))},
          .infer = infer_forward,
          .reference = forward_reference,
          .gradient = [gradient](GradientContext& g) {
            auto input = [&](int i) { return i < g.count() ? g.input(i) : Value{}; };
            Value d = emit(gradient, {g.input(0), g.output(1), g.output(2), g.output_gradient(), input(1)}, unrounded(g.attributes), {});
            std::vector<Value> out = {d};
            for (int i = 1; i < g.count(); ++i) out.push_back(input(i) ? d.output(i) : Value{});
            return out;
          },
          .split = split_forward,
          .flops = flops,
          .in_place = {{0, 0}},
          .precision = Precision::follow};
}

OpDef gradient_def(const char* name, std::vector<AttributeDef> attributes) {
  attributes.push_back({"wide", false});
  return {.name = name,
          .attributes = std::move(attributes),
          .inputs = {"x", wide_input("mean"), wide_input("inverse_deviation"), "dy", wide_input(optional_input("gamma"))},
          .outputs = {"dx", wide_output(optional_output("dgamma")), wide_output(optional_output("dbeta"))},
          .infer = infer_gradient,
          .reference = gradient_reference,
          .gradient = no_gradient("second derivatives of norms are in no net here"),
          .split = split_gradient,
          .flops = flops,
          .in_place = {{0, 3}},
          .precision = Precision::follow};
}

}  // namespace

std::vector<OpDef> layer_norm_defs() {
  AttributeDef epsilon = AttributeDef("epsilon", 1e-3).between(0, 1), groups("groups", AttributeKind::integer);
  std::vector<OpDef> out;
  out.push_back(forward_def("layer_norm", {{"axis", -1}, epsilon, {"rms", false}}, "layer_norm_gradient"));
  out.push_back(gradient_def("layer_norm_gradient", {{"axis", -1}, epsilon, {"rms", false}}));
  out.push_back(forward_def("group_norm", {groups, epsilon}, "group_norm_gradient"));
  out.push_back(gradient_def("group_norm_gradient", {groups, epsilon}));
  return out;
}

Value layer_norm(Value x, Value gamma, Value beta, const LayerNormOptions& o, SourceLine at) { return emit("layer_norm", {x, gamma, beta}, {{"axis", o.axis}, {"epsilon", o.epsilon}}, at); }
Value rms_norm(Value x, Value gamma, const LayerNormOptions& o, SourceLine at) { return emit("layer_norm", {x, gamma, {}}, {{"axis", o.axis}, {"epsilon", o.epsilon}, {"rms", true}}, at); }
Value group_norm(Value x, Value gamma, Value beta, const GroupNormOptions& o, SourceLine at) { return emit("group_norm", {x, gamma, beta}, {{"groups", o.groups}, {"epsilon", o.epsilon}}, at); }

}  // namespace belfry
