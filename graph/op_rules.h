// The rules that an op states as functions: inference, reference, gradient and split.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/split_state.h>
#include <belfry/graph/value.h>

namespace belfry {

class InferContext;
class GradientContext;
struct SplitContext;
struct Call;

/// States that the op reads its inputs in (one that differs from what it was offered is a demand), and gives.
struct Split {
  std::vector<SplitState> reads;
  std::vector<SplitState> gives;
};

/// A rule that every op must state: it has no default, so leaving it out does not compile.
template <class Signature>
struct Rule : std::function<Signature> {
  template <class F>
  Rule(F f) : std::function<Signature>(std::move(f)) {}
};

using InferRule = Rule<std::vector<TensorType>(InferContext&)>;
using ReferenceRule = Rule<void(const Call&)>;
using SplitRule = Rule<Split(const SplitContext&)>;

struct NoGradient {
  std::string reason;
};
/// The op is not differentiable, or nobody has use for its derivative: says which.
inline NoGradient no_gradient(std::string reason) { return {std::move(reason)}; }

/// Gradients of the inputs, in their order; an empty Value where there is none. Or the reason why there is no gradient at all.
struct GradientRule {
  template <class F>
  GradientRule(F f) : build(std::move(f)) {}
  GradientRule(NoGradient none) : no_gradient_reason(std::move(none.reason)) {}
  std::function<std::vector<Value>(GradientContext&)> build;
  std::string no_gradient_reason;
};

}  // namespace belfry
