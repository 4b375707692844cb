#include <belfry/ops/losses/losses.h>

#include <fmt/format.h>

#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>

namespace belfry {

namespace {

constexpr double kEpsilon = 1e-7;

/// The label (or weight) in the prediction's dtype.
Value matched(const char* loss, Value prediction, Value label) {
  auto named = [](Value v) { return fmt::format("'{}' is {}", v.name(), to_string(v.type())); };
  if (!is_float(prediction.dtype())) throw UserError(fmt::format("[{}] {}; it must be f32 or f64", loss, named(prediction)));
  if (prediction.shape() != label.shape()) throw UserError(fmt::format("[{}] {}, but {}; they need one shape", loss, named(prediction), named(label)));
  return label.dtype() == prediction.dtype() ? label : cast(label, prediction.dtype());
}

Value per_example(Value v) { return v.rank() < 2 ? v : reduce_mean(v, {.axes = {-1}}); }
Value sum_of_classes(const char* loss, Value v) {
  if (v.rank() < 1) throw UserError(fmt::format("[{}] the prediction needs an axis of classes", loss));
  return reduce_sum(v, {.axes = {-1}});
}

/// label·(1 − s) + s·share.
Value smoothed(const char* loss, Value label, double s, double share) {
  if (!(s >= 0 && s <= 1)) throw UserError(fmt::format("[{}] label_smoothing is {}; it must be in [0, 1]", loss, s));
  return s == 0 ? label : label * (1 - s) + s * share;
}

Value margin(const char* loss, Value prediction, Value label) {
  Value short_of = 1 - matched(loss, prediction, label) * prediction;
  return maximum(short_of, constant_like(short_of, 0));
}

}  // namespace

Value binary_cross_entropy(Value prediction, Value label, const CrossEntropyOptions& o, SourceLine at) {
  SourceGuard guard(graph_of(prediction, "binary_cross_entropy", at), at);
  label = smoothed("binary_cross_entropy", matched("binary_cross_entropy", prediction, label), o.label_smoothing, 0.5);
  if (o.from_logits) return per_example(sigmoid_cross_entropy(prediction, label));
  Value p = clip(prediction, kEpsilon, 1 - kEpsilon);
  return per_example(-(label * log(p) + (1 - label) * log(1 - p)));
}

Value categorical_cross_entropy(Value prediction, Value label, const CrossEntropyOptions& o, SourceLine at) {
  const char* name = "categorical_cross_entropy";
  SourceGuard guard(graph_of(prediction, "categorical_cross_entropy", at), at);
  label = matched(name, prediction, label);
  if (label.rank() < 1 || label.shape().back().symbolic()) throw UserError(fmt::format("[{}] the last axis of {} must have a fixed size: the classes", name, to_string(label.type())));
  label = smoothed(name, label, o.label_smoothing, 1 / static_cast<double>(label.shape().back().factor));
  if (o.from_logits) return softmax_cross_entropy(prediction, label);
  Value p = prediction / reduce_sum(prediction, {.axes = {-1}, .keep = true});
  return -sum_of_classes(name, label * log(clip(p, kEpsilon, 1 - kEpsilon)));
}

Value mean_squared_error(Value prediction, Value label, SourceLine at) {
  SourceGuard guard(graph_of(prediction, "mean_squared_error", at), at);
  return per_example(squared_difference(prediction, matched("mean_squared_error", prediction, label)));
}

Value mean_absolute_error(Value prediction, Value label, SourceLine at) {
  SourceGuard guard(graph_of(prediction, "mean_absolute_error", at), at);
  return per_example(abs(prediction - matched("mean_absolute_error", prediction, label)));
}

Value huber(Value prediction, Value label, double delta, SourceLine at) {
  SourceGuard guard(graph_of(prediction, "huber", at), at);
  if (!(delta > 0)) throw UserError(fmt::format("[huber] delta is {}; it must be positive", delta));
  // With c = e held in [−delta, delta] both branches are c·(e − c/2).
  Value e = prediction - matched("huber", prediction, label), c = clip(e, -delta, delta);
  return per_example(c * (e - c * 0.5));
}

Value kl_divergence(Value prediction, Value label, SourceLine at) {
  SourceGuard guard(graph_of(prediction, "kl_divergence", at), at);
  Value t = clip(matched("kl_divergence", prediction, label), kEpsilon, 1), p = clip(prediction, kEpsilon, 1);
  return sum_of_classes("kl_divergence", t * log(t / p));
}

Value hinge(Value prediction, Value label, SourceLine at) {
  SourceGuard guard(graph_of(prediction, "hinge", at), at);
  return per_example(margin("hinge", prediction, label));
}

Value squared_hinge(Value prediction, Value label, SourceLine at) {
  SourceGuard guard(graph_of(prediction, "squared_hinge", at), at);
  return per_example(square(margin("squared_hinge", prediction, label)));
}

Value weighted_mean(Value loss, Value weight, SourceLine at) {
  SourceGuard guard(graph_of(loss, "weighted_mean", at), at);
  weight = matched("weighted_mean", loss, weight);
  Value total = reduce_sum(weight);
  return reduce_sum(loss * weight) / where(equal(total, constant_like(total, 0)), constant_like(total, 1), total);
}

}  // namespace belfry
