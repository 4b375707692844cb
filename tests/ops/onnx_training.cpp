// Norms, losses and updates of variables as ONNX has them.
#include <cmath>
#include <numeric>

#include "onnx_rows.h"

namespace belfry::test::onnx {

namespace {

/// Losses per example, weighed by class, without those of the class that is ignored.
Value weighed(const Case& c, Value losses, Value target, Value is_ignored) {
  Value one = constant_like(losses, 1), w = c.has(2) ? gather(c(2), target) : broadcast_like(one, losses);
  if (is_ignored) w = where(is_ignored, constant_like(w, 0), w);
  losses = losses * w;
  std::string how = c.text("reduction", "mean");
  return how == "none" ? losses : how == "sum" ? reduce_sum(losses) : reduce_sum(losses) / reduce_sum(w);
}

struct Target {
  Value safe, ignored;
};
Target target_of(const Case& c) {
  Value t = c(1);
  if (!c.has("ignore_index")) return {t, {}};
  Value ignored = equal(t, constant_like(t, static_cast<double>(c.integer("ignore_index", 0))));
  return {where(ignored, constant_like(t, 0), t), ignored};
}

/// Inputs are rate, step and, for each of `kinds`, one tensor per variable; outputs are those of all variables, kind by kind.
Outputs update(const Case& c, std::size_t kinds, Outputs (*of_one)(const Case& c, Value rate, const Outputs& in)) {
  std::size_t variables = (c.count() - 2) / kinds;
  Outputs out(c.outputs());
  for (std::size_t v = 0; v < variables; ++v) {
    Outputs in;
    for (std::size_t k = 0; k < kinds; ++k) in.push_back(c(2 + k * variables + v));
    in[1] = in[1] + in[0] * c.real("norm_coefficient", 0);  // the gradient, with weight decay
    Outputs one = of_one(c, reshape(c(0), {}), in);
    for (std::size_t k = 0; k < one.size(); ++k) out.at(k * variables + v) = one[k];
  }
  return out;
}

}  // namespace

Outputs batch_normalization(Case& c) {
  c.whole.training = c.flag("training_mode");
  Value y = batch_norm(channels_last(c(0)), c(1), c(2), c(3), c(4), {.epsilon = c.real("epsilon", 1e-5)});
  if (!c.whole.training) return {channels_first(y)};
  double keep = c.real("momentum", 0.9);
  return {channels_first(y), c(3) * keep + y.output(1) * (1 - keep), c(4) * keep + y.output(2) * (1 - keep)};
}

Outputs instance_normalization(Case& c) { return {channels_first(group_norm(channels_last(c(0)), c(1), c(2), {.groups = c().shape()[1].factor, .epsilon = c.real("epsilon", 1e-5)}))}; }

Outputs group_normalization(Case& c) { return {channels_first(group_norm(channels_last(c(0)), c(1), c(2), {.groups = c.integer("num_groups", 1), .epsilon = c.real("epsilon", 1e-5)}))}; }

Outputs layer_normalization(Case& c) {
  int axis = from_front(c.axis(-1), c().rank());
  Integers reduced(static_cast<std::size_t>(c().rank() - axis));
  std::iota(reduced.begin(), reduced.end(), axis);
  Value y = layer_norm(c(0), c(1), c.optional(2), {.axis = axis, .epsilon = c.real("epsilon", 1e-5)});
  Outputs out = {y};
  for (int k = 1; k < static_cast<int>(c.outputs()); ++k) out.push_back(expand_dims(y.output(k), reduced));
  return out;
}

/// ONNX divides alpha by the number of channels.
Outputs local_response_normalization(Case& c) {
  std::int64_t size = c.integer("size", 1);
  if (size % 2 == 0) throw feature_missing("local_response_norm over an even number of channels");
  return {channels_first(local_response_norm(
      channels_last(c()), {.depth_radius = size / 2, .bias = c.real("bias", 1), .alpha = c.real("alpha", 1e-4) / static_cast<double>(size), .beta = c.real("beta", 0.75)}))};
}

Outputs nll_loss(Case& c) {
  Target t = target_of(c);
  return {weighed(c, -squeeze(take_along_axis(c(0), expand_dims(t.safe, {1}), 1), {1}), t.safe, t.ignored)};
}

Outputs cross_entropy_loss(Case& c) {
  Target t = target_of(c);
  Value losses = sparse_softmax_cross_entropy(channels_last(c(0)), t.safe);
  Outputs out = {weighed(c, losses, t.safe, t.ignored)};
  if (c.outputs() > 1) out.push_back(channels_first(losses.output(1)));
  return out;
}

Outputs momentum_update(Case& c) {
  return update(c, 3, [](const Case& c, Value rate, const Outputs& in) {
    Value gradient = c.number(1) > 0 ? in[1] * c.real("beta", 1) : in[1];
    Value y = c.add("momentum", {in[0], in[2], gradient, rate}, {{"momentum", c.real("alpha", 0)}, {"nesterov", c.text("mode", "standard") == "nesterov"}});
    return Outputs{y, y.output(1)};
  });
}

Outputs adam_update(Case& c) {
  return update(c, 4, [](const Case& c, Value rate, const Outputs& in) {
    double beta1 = c.real("alpha", 0.9), beta2 = c.real("beta", 0.999), t = c.number(1);
    if (t > 0) rate = rate * (std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t)));
    Value y = c.add("adam", {in[0], in[2], in[3], in[1], rate}, {{"beta1", beta1}, {"beta2", beta2}, {"epsilon", c.real("epsilon", 1e-6)}});
    return Outputs{y, y.output(1), y.output(2)};
  });
}

Outputs adagrad_update(Case& c) {
  return update(c, 3, [](const Case& c, Value rate, const Outputs& in) {
    rate = rate * (1 / (1 + c.number(1) * c.real("decay_factor", 0)));
    Value y = c.add("adagrad", {in[0], in[2], in[1], rate}, {{"epsilon", c.real("epsilon", 1e-6)}, {"epsilon_inside", false}});
    return Outputs{y, y.output(1)};
  });
}

}  // namespace belfry::test::onnx
