#include <belfry/ops/passes/loss_scale.h>

#include <map>

#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

constexpr double kFirst = 32768, kLeast = 1, kGreatest = 16777216;  // 2^15, and the bounds that NVIDIA's Apex has: 1 and 2^24
constexpr std::int64_t kSteps = 2000;

}  // namespace

LossScale::LossScale(Graph& graph, const Attributes& options) : graph_(graph), steps_(options.integer("loss_scale_steps")) {
  double first = options.real("loss_scale");
  if (first == 0 && graph.precision != f16) return;
  if (first == 0) first = kFirst, steps_ = kSteps;
  graph_.cursor = {"", {}, -1, Role::update, {}};
  if (steps_ == 0) {
    scale_ = graph_.add("constant", {}, {{"value", HostTensor::scalar(static_cast<float>(first))}}, "loss_scale");
  } else {
    scale_ = variable(graph_, "loss_scale", {}, {.init = "constant", .init_value = first, .trainable = false}, {});
    good_steps_ = variable(graph_, "loss_scale/good_steps", {}, {.dtype = i64, .trainable = false}, {});
  }
  graph_.cursor = {};
}

std::vector<Value> LossScale::begin(const std::vector<ValueId>& losses) {
  std::vector<Value> out;
  for (ValueId loss : losses) {
    graph_.cursor = {"loss_scale", {}, loss.node, Role::backward, {}};
    out.push_back(cast(scale_, graph_.type(loss).dtype, {}));
  }
  graph_.cursor = {};
  return out;
}

void LossScale::divide(std::vector<Value>& gradients) {
  graph_.cursor = {"loss_scale", {}, -1, Role::update, {}};
  std::map<DType, Value> inverse;
  for (Value& g : gradients) {
    auto [at, fresh] = inverse.try_emplace(g.dtype());
    if (fresh) at->second = 1 / cast(scale_, g.dtype(), {});
    g = g * at->second;
  }
  graph_.cursor = {};
}

void LossScale::update(ValueId gate, Value finite) {
  if (!good_steps_) return;
  graph_ = gate_updates(graph_, gate);
  graph_.cursor = {"loss_scale", {}, scale_.id.node, Role::update, {}};
  Value next = good_steps_ + 1, none = constant_like(next, 0);
  Value full = greater_equal(next, constant_like(next, static_cast<double>(steps_)));
  Value grown = where(full, minimum(scale_ * 2, constant_like(scale_, kGreatest)), scale_);
  graph_.updates[scale_.id.node] = where(finite, grown, maximum(scale_ * 0.5, constant_like(scale_, kLeast))).id;
  graph_.updates[good_steps_.id.node] = where(finite, where(full, none, next), none).id;
  graph_.cursor = {};
}

}  // namespace belfry
