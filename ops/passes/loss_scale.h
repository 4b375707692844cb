// The scale of the loss, by which small gradients come through f16: part of differentiate.
#pragma once

#include <optional>
#include <vector>

#include <belfry/graph/graph.h>

namespace belfry {

class LossScale {
 public:
  /// Of the options loss_scale and loss_scale_steps; where f16 is asked for without them, 2^15 and 2000 steps, as Keras begins.
  LossScale(Graph& graph, const Attributes& options);
  explicit operator bool() const { return static_cast<bool>(scale_); }
  /// What the gradients of the losses begin with: empty for 1.
  std::vector<Value> begin(const std::vector<ValueId>& losses);
  void divide(std::vector<Value>& gradients);
  /// Where it moves: all updates so far keep their state where `gate` is false; the scale's own follow whether the gradients were finite.
  void update(ValueId gate, Value finite);

 private:
  Graph& graph_;
  Value scale_, good_steps_;
  std::int64_t steps_ = 0;
};

}  // namespace belfry
