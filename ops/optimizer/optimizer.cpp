#include <belfry/ops/optimizer/optimizer.h>

#include <cmath>

#include <belfry/graph/split_rules.h>

namespace belfry {

namespace {

/// The first `tensors` inputs have one type; the rest are scalars. Outputs: the first `outputs` inputs anew.
InferRule infer(int tensors, int outputs) {
  return [=](InferContext& c) {
    c.need_float(0);
    for (int i = 1; i < tensors; ++i)
      if (c.type(i) != c.type(0)) c.fail("variable, slots and gradient must have one type");
    for (int i = tensors; i < c.count(); ++i)
      if (c.type(i) != TensorType{c.dtype(0), {}}) c.fail("the rate must be a scalar of the variable's dtype");
    return std::vector<TensorType>(static_cast<std::size_t>(outputs), c.type(0));
  };
}

NoGradient none() { return no_gradient("an update is the end of a step"); }

void sgd(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    auto w = c.inputs[0].as<T>(), g = c.inputs[1].as<T>();
    T rate = c.inputs[2].as<T>()[0];
    auto out = c.outputs[0].as<T>();
    for (std::size_t i = 0; i < w.size(); ++i) out[i] = w[i] - rate * g[i];
  });
}

void momentum(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    auto w = c.inputs[0].as<T>(), m = c.inputs[1].as<T>(), g = c.inputs[2].as<T>();
    T rate = c.inputs[3].as<T>()[0], keep = static_cast<T>(c.attributes.real("momentum"));
    bool nesterov = c.attributes.flag("nesterov");
    auto w_out = c.outputs[0].as<T>(), m_out = c.outputs[1].as<T>();
    for (std::size_t i = 0; i < w.size(); ++i) {
      T gradient = g[i], next = keep * m[i] + gradient;
      m_out[i] = next;
      w_out[i] = w[i] - rate * (nesterov ? gradient + keep * next : next);
    }
  });
}

void adam(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    auto w = c.inputs[0].as<T>(), m = c.inputs[1].as<T>(), v = c.inputs[2].as<T>(), g = c.inputs[3].as<T>();
    T rate = c.inputs[4].as<T>()[0], epsilon = static_cast<T>(c.attributes.real("epsilon"));
    T new1 = static_cast<T>(1 - c.attributes.real("beta1")), new2 = static_cast<T>(1 - c.attributes.real("beta2"));
    auto w_out = c.outputs[0].as<T>(), m_out = c.outputs[1].as<T>(), v_out = c.outputs[2].as<T>();
    for (std::size_t i = 0; i < w.size(); ++i) {
      T gradient = g[i];
      T m1 = m[i] + (gradient - m[i]) * new1;
      T v1 = v[i] + (gradient * gradient - v[i]) * new2;
      m_out[i] = m1;
      v_out[i] = v1;
      w_out[i] = w[i] - rate * m1 / (std::sqrt(v1) + epsilon);
    }
  });
}

void adam_rate(const Call& c) {
  double beta1 = c.attributes.real("beta1"), beta2 = c.attributes.real("beta2");
  bool exact = c.attributes.text("powers") == "exact";
  visit_float(c.dtype(), [&]<class T>() {
    T rate = c.inputs[0].as<T>()[0];
    std::int64_t step = c.inputs[1].as<std::int64_t>()[0] + 1;
    if (exact) {
      double t = static_cast<double>(step);
      c.outputs[0].as<T>()[0] = static_cast<T>(static_cast<double>(rate) * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t)));
    } else {
      T t = static_cast<T>(step), power1 = std::pow(static_cast<T>(static_cast<float>(beta1)), t), power2 = std::pow(static_cast<T>(static_cast<float>(beta2)), t);
      c.outputs[0].as<T>()[0] = rate * std::sqrt(1 - power2) / (1 - power1);
    }
  });
}

}  // namespace

std::vector<OpDef> optimizer_defs() {
  std::vector<OpDef> out;
  out.push_back({.name = "sgd",
                 .inputs = {"w", "gradient", "rate"},
                 .infer = infer(2, 1),
                 .reference = sgd,
                 .gradient = none(),
                 .split = all_replicated(),
                 .in_place = {{0, 0}, {0, 1}},
                 .exact = true});
  out.push_back({.name = "momentum",
                 .attributes = {AttributeDef("momentum", 0.9).between(0, 1), {"nesterov", false}},
                 .inputs = {"w", "m", "gradient", "rate"},
                 .outputs = {"w", "m"},
                 .infer = infer(3, 2),
                 .reference = momentum,
                 .gradient = none(),
                 .split = all_replicated(),
                 .in_place = {{0, 0}, {1, 1}},
                 .exact = true});
  std::vector<AttributeDef> betas = {AttributeDef("beta1", 0.9).between(0, 1), AttributeDef("beta2", 0.999).between(0, 1)};
  auto adam_attributes = betas;
  adam_attributes.push_back(AttributeDef("epsilon", 1e-7).between(0, 1));
  out.push_back({.name = "adam",
                 .attributes = adam_attributes,
                 .inputs = {"w", "m", "v", "gradient", "rate"},
                 .outputs = {"w", "m", "v"},
                 .infer = infer(4, 3),
                 .reference = adam,
                 .gradient = none(),
                 .split = all_replicated(),
                 .in_place = {{0, 0}, {1, 1}, {2, 2}},
                 .exact = true});
  auto rate_attributes = betas;
  rate_attributes.push_back(AttributeDef("powers", "float32").one_of({"float32", "exact"}));
  out.push_back({.name = "adam_rate",
                 .attributes = rate_attributes,
                 .inputs = {"rate", "step"},
                 .infer = [](InferContext& c) {
                   c.need_float(0);
                   if (!c.shape(0).empty() || c.type(1) != TensorType{i64, {}}) c.fail("needs a scalar rate and a scalar step of i64");
                   return c.same_type_as(0);
                 },
                 .reference = adam_rate,
                 .gradient = none(),
                 .split = all_replicated()});
  return out;
}

}  // namespace belfry
