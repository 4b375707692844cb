#include <belfry/ops/optimizer/optimizer.h>

#include <array>
#include <cmath>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/optimizer/adam_formulas.h>
#include <belfry/ops/optimizer/adaptive_formulas.h>
#include <belfry/ops/optimizer/momentum_formulas.h>

namespace belfry {

namespace {

using namespace optimizer_formulas;

constexpr std::string_view kAverage = "/ExponentialMovingAverage";

/// Inputs: w, slots, gradient, scalars, and at will decay. Outputs: w, slots.
struct Row {
  const char* name;
  std::vector<const char*> slots;
  ReferenceRule reference;
  std::vector<AttributeDef> attributes = {};
  std::vector<const char*> scalars = {"rate"};
  bool decays = true, exact = true;
};

InferRule infer(int slots, bool decays) {
  return [=](InferContext& c) {
    c.need_float(0);
    for (int i = 1; i < slots + 2; ++i)
      if (c.type(i) != c.type(0)) c.fail("variable, slots and gradient must have one type");
    for (int i = slots + 2; i < c.count(); ++i)
      if (c.has(i) && c.type(i) != TensorType{c.dtype(0), {}}) c.fail((decays ? "the rate must be a scalar" : "the scalars must be scalars") + std::string(" of the variable's dtype"));
    return std::vector<TensorType>(static_cast<std::size_t>(slots) + 1, c.type(0));
  };
}

NoGradient none() { return no_gradient("an update is the end of a step"); }

template <class F>
void walk(const Call& c) {
  using T = typename F::Real;
  constexpr std::size_t kSlots = F::kSlots, kScalars = F::kScalars, kDecay = kSlots + 2 + kScalars;
  const F formula(c.attributes);
  auto w = c.inputs[0].as<T>(), g = c.inputs[kSlots + 1].as<T>();
  std::array<T, kScalars> scalars;
  for (std::size_t k = 0; k < kScalars; ++k) scalars[k] = c.inputs[kSlots + 2 + k].as<T>()[0];
  const T* decay = c.inputs.size() > kDecay && c.inputs[kDecay].data ? c.inputs[kDecay].as<T>().data() : nullptr;
  for (std::size_t i = 0; i < w.size(); ++i) {
    std::array<T, kSlots + 1> s{};
    for (std::size_t k = 0; k < kSlots; ++k) s[k] = c.inputs[k + 1].as<T>()[i];
    T next = formula(decay ? w[i] - *decay * w[i] : w[i], g[i], scalars.data(), s.data());
    for (std::size_t k = 0; k < kSlots; ++k) c.outputs[k + 1].as<T>()[i] = s[k];
    c.outputs[0].as<T>()[i] = next;
  }
}

template <template <class> class F>
void reference(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() { walk<F<T>>(c); });
}

void ftrl(const Call& c) {
  if (c.attributes.real("power") == -0.5) reference<FtrlRoot>(c);
  else reference<FtrlPower>(c);
}

/// By squaring: the same products everywhere, which no library's pow promises.
double power(double base, std::int64_t exponent) {
  double out = 1;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2) out *= base;
  return out;
}

void adam_rate(const Call& c) {
  double beta1 = c.attributes.real("beta1"), beta2 = c.attributes.real("beta2");
  bool exact = c.attributes.text("powers") == "exact";
  visit_float(c.dtype(), [&]<class T>() {
    T rate = c.inputs[0].as<T>()[0];
    std::int64_t step = c.inputs[1].as<std::int64_t>()[0] + 1;
    if (exact) {
      c.outputs[0].as<T>()[0] = static_cast<T>(static_cast<double>(rate) * std::sqrt(1 - power(beta2, step)) / (1 - power(beta1, step)));
    } else {
      T power1 = static_cast<T>(power(static_cast<float>(beta1), step)), power2 = static_cast<T>(power(static_cast<float>(beta2), step));
      c.outputs[0].as<T>()[0] = rate * std::sqrt(1 - power2) / (1 - power1);
    }
  });
}

OpDef adam_rate_def(std::vector<AttributeDef> attributes) {
  attributes.push_back(AttributeDef("powers", "float32").one_of({"float32", "exact"}));
  return {.name = "adam_rate",
          .attributes = std::move(attributes),
          .inputs = {"rate", "step"},
          .infer = [](InferContext& c) {
            c.need_float(0);
            if (!c.shape(0).empty() || c.type(1) != TensorType{i64, {}}) c.fail("needs a scalar rate and a scalar step of i64");
            return c.same_type_as(0);
          },
          .reference = adam_rate,
          .gradient = none(),
          .split = all_replicated(),
          .exact = true};
}

OpDef def(Row row) {
  std::vector<InputDef> inputs = {"w"};
  std::vector<OutputDef> outputs = {"w"};
  std::vector<std::pair<int, int>> in_place = {{0, 0}};
  for (const char* s : row.slots) {
    inputs.push_back(s);
    outputs.push_back(s);
    in_place.emplace_back(static_cast<int>(outputs.size()) - 1, static_cast<int>(outputs.size()) - 1);
  }
  inputs.push_back("gradient");
  if (row.slots.empty()) in_place.emplace_back(0, 1);
  for (const char* s : row.scalars) inputs.push_back(s);
  if (row.decays) inputs.push_back(optional_input("decay"));
  return {.name = row.name,
          .attributes = std::move(row.attributes),
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .infer = infer(static_cast<int>(row.slots.size()), row.decays),
          .reference = std::move(row.reference),
          .gradient = none(),
          .split = all_replicated(),
          .in_place = std::move(in_place),
          .by_element = true,
          .exact = row.exact};
}

}  // namespace

std::vector<OpDef> optimizer_defs() {
  auto share = [](const char* name, double value) { return AttributeDef(name, value).between(0, 1); };
  auto no_less_than_0 = [](const char* name, double value) { return AttributeDef(name, value).between(0, 1e30); };
  const std::vector<AttributeDef> betas = {AttributeDef("beta1", 0.9).between(0, kLargestDecay), AttributeDef("beta2", 0.999).between(0, kLargestDecay)};
  const AttributeDef momentum = share("momentum", 0.9), inside = {"epsilon_inside", true};
  auto with = [](std::vector<AttributeDef> first, std::initializer_list<AttributeDef> rest) {
    first.insert(first.end(), rest);
    return first;
  };
  const auto moments = with(betas, {share("epsilon", 1e-7)});
  const std::vector<AttributeDef> rms = {share("rho", 0.9), share("epsilon", 1e-7), inside};
  std::vector<OpDef> out;
  auto add = [&](Row row) { out.push_back(def(std::move(row))); };
  add({"sgd", {}, reference<Sgd>});
  add({"momentum", {"m"}, reference<Momentum>, {momentum, {"nesterov", false}}});
  add({"adam", {"m", "v"}, reference<Adam>, moments});
  add({"amsgrad", {"m", "v", "top"}, reference<Amsgrad>, moments});
  add({"adamax", {"m", "u"}, reference<Adamax>, moments});
  add({"rmsprop", {"v"}, reference<Rmsprop>, rms});
  add({"rmsprop_momentum", {"v", "m"}, reference<RmspropMomentum>, with(rms, {momentum})});
  add({"rmsprop_centered", {"v", "mean"}, reference<RmspropCentered>, rms});
  add({"rmsprop_centered_momentum", {"v", "mean", "m"}, reference<RmspropCenteredMomentum>, with(rms, {momentum})});
  add({"adagrad", {"sum"}, reference<Adagrad>, {share("epsilon", 1e-7), inside}});
  add({"adadelta", {"v", "u"}, reference<Adadelta>, {share("rho", 0.95), share("epsilon", 1e-7)}});
  add({.name = "ftrl",
       .slots = {"sum", "z"},
       .reference = ftrl,
       .attributes = {AttributeDef("power", -0.5).between(-4, 0), no_less_than_0("l1", 0), no_less_than_0("l2", 0), no_less_than_0("l2_shrinkage", 0), no_less_than_0("beta", 0)},
       .exact = false});
  add({"lion", {"m"}, reference<Lion>, {share("beta1", 0.9), share("beta2", 0.99)}});
  add({.name = "lamb", .slots = {"m", "v"}, .reference = reference<Lamb>, .attributes = with(moments, {no_less_than_0("weight_decay", 0)}), .scalars = {"scale", "root"}, .decays = false});
  add({.name = "moving_average", .slots = {}, .reference = reference<MovingAverage>, .scalars = {"weight"}, .decays = false});
  out.push_back(adam_rate_def(betas));
  return out;
}

std::vector<Shape> factored_slots(const Shape& w) {
  if (w.size() < 2) return {w};
  Shape r(w.begin(), w.end() - 1), c(w.begin(), w.end() - 2);
  c.push_back(w.back());
  return {r, c};
}

Factored adafactor(Value w, const std::vector<Value>& slots, Value gradient, Value bounded, Value kept, const Attributes& a) {
  auto rms = [](Value x) { return sqrt(reduce_mean(square(x))); };
  auto moved = [&](Value slot, Value now) { return kept * slot + (1 - kept) * now; };
  Value squares = square(gradient) + a.real("epsilon1"), v;
  Factored out;
  if (slots.size() == 1) {
    out.slots = {v = moved(slots[0], squares)};
  } else {
    Value r = moved(slots[0], reduce_mean(squares, {.axes = {-1}})), c = moved(slots[1], reduce_mean(squares, {.axes = {-2}}));
    out.slots = {r, c};
    v = expand_dims(r / reduce_mean(r, {.axes = {-1}, .keep = true}), {-1}) * expand_dims(c, {-2});
  }
  out.direction = gradient / sqrt(v);
  Value size = rms(w), excess = rms(out.direction) / a.real("clip_threshold");
  out.rate = bounded * maximum(size, constant_like(size, a.real("epsilon2"))) / maximum(excess, constant_like(excess, 1));
  return out;
}

std::string average_of(const std::string& variable) { return variable + std::string(kAverage); }
std::string averaged_by(const std::string& average) { return average.ends_with(kAverage) ? average.substr(0, average.size() - kAverage.size()) : average; }

}  // namespace belfry
