#include <belfry/ops/local_response_norm/local_response_norm.h>

#include <algorithm>
#include <cmath>

#include <belfry/graph/split_rules.h>

namespace belfry {

namespace {

struct Formula {
  explicit Formula(const Attributes& a) : radius(a.integer("depth_radius")), bias(a.real("bias")), alpha(a.real("alpha")), beta(a.real("beta")) {}
  std::int64_t radius;
  double bias, alpha, beta;
};

/// Σ f(k) over the neighbours of channel c.
template <class F>
double around(std::int64_t c, std::int64_t channels, std::int64_t radius, F f) {
  double sum = 0;
  for (std::int64_t k = c - std::min(radius, c); k < channels && k - c <= radius; ++k) sum += f(static_cast<std::size_t>(k));
  return sum;
}

/// bias + alpha · Σ x² for every channel of one pixel.
template <class T>
std::vector<double> bases(const T* x, std::int64_t channels, const Formula& f) {
  std::vector<double> out;
  for (std::int64_t c = 0; c < channels; ++c)
    out.push_back(f.bias + f.alpha * around(c, channels, f.radius, [&](std::size_t k) { return static_cast<double>(x[k]) * static_cast<double>(x[k]); }));
  return out;
}

void forward(const Call& call) {
  visit_float(call.dtype(), [&]<class T>() {
    Formula f(call.attributes);
    auto x = call.inputs[0].as<T>();
    auto y = call.outputs[0].as<T>();
    std::int64_t channels = call.inputs[0].type.shape.back();
    for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(channels)) {
      std::vector<double> base = bases(x.data() + at, channels, f);
      for (std::size_t c = 0; c < base.size(); ++c) y[at + c] = static_cast<T>(static_cast<double>(x[at + c]) / std::pow(base[c], f.beta));
    }
  });
}

/// dx_c = dy_c·s_c^−beta − 2·alpha·beta·x_c · Σ dy_k·x_k·s_k^(−beta−1), s being the bases.
void gradient(const Call& call) {
  visit_float(call.dtype(), [&]<class T>() {
    Formula f(call.attributes);
    auto x = call.inputs[0].as<T>(), dy = call.inputs[1].as<T>();
    auto dx = call.outputs[0].as<T>();
    std::int64_t channels = call.inputs[0].type.shape.back();
    for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(channels)) {
      std::vector<double> base = bases(x.data() + at, channels, f);
      for (std::size_t c = 0; c < base.size(); ++c) {
        double others = around(static_cast<std::int64_t>(c), channels, f.radius,
                               [&](std::size_t k) { return static_cast<double>(dy[at + k]) * static_cast<double>(x[at + k]) * std::pow(base[k], -f.beta - 1); });
        dx[at + c] = static_cast<T>(static_cast<double>(dy[at + c]) * std::pow(base[c], -f.beta) - 2 * f.alpha * f.beta * static_cast<double>(x[at + c]) * others);
      }
    }
  });
}

std::vector<TensorType> checked_type(InferContext& c) {
  c.need_float(0);
  if (c.rank(0) < 2) c.fail("x needs an axis of channels behind others");
  if (c.shape(0).back().symbolic()) c.fail("the last axis, that of the channels, is a fixed size");
  if (!(c.attributes.real("bias") > 0)) c.fail("bias " + to_string(AttributeValue(c.attributes.real("bias"))) + " must be above 0");
  if (!(c.attributes.real("alpha") >= 0)) c.fail("alpha " + to_string(AttributeValue(c.attributes.real("alpha"))) + " must be 0 or above");
  return c.same_type_as(0);
}

double flops(const LocalType& x, const Attributes& a) {
  double window = std::min(2 * static_cast<double>(a.integer("depth_radius")) + 1, static_cast<double>(x.shape.back()));
  return static_cast<double>(x.elements()) * (2 * window + 4);
}

}  // namespace

std::vector<OpDef> local_response_norm_defs() {
  std::vector<AttributeDef> attributes = {AttributeDef("depth_radius", 5).between(0, 0x7fffffff), {"bias", 1.0}, {"alpha", 1.0}, {"beta", 0.5}};
  std::vector<OpDef> out;
  out.push_back({.name = "local_response_norm",
                 .attributes = attributes,
                 .inputs = {"x"},
                 .infer = checked_type,
                 .reference = forward,
                 .gradient = [](GradientContext& g) { return std::vector<Value>{emit("local_response_norm_gradient", {g.input(0), g.output_gradient()}, g.attributes, {})}; },
                 .split = split_elementwise(),
                 .flops = [](auto in, auto, const Attributes& a) { return flops(in[0], a); }});
  out.push_back({.name = "local_response_norm_gradient",
                 .attributes = attributes,
                 .inputs = {"x", "dy"},
                 .outputs = {"dx"},
                 .infer = [](InferContext& c) {
                   if (c.type(0) != c.type(1)) c.fail("dy must be " + to_string(c.type(0)));
                   return checked_type(c);
                 },
                 .reference = gradient,
                 .gradient = no_gradient("second derivatives of local response normalisation are in no net here"),
                 .split = split_elementwise(),
                 .flops = [](auto in, auto, const Attributes& a) { return 2 * flops(in[0], a); }});
  return out;
}

Value local_response_norm(Value x, const LocalResponseNormOptions& o, SourceLine at) {
  return emit("local_response_norm", {x}, {{"depth_radius", o.depth_radius}, {"bias", o.bias}, {"alpha", o.alpha}, {"beta", o.beta}}, at);
}

}  // namespace belfry
