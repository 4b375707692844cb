// Ops on f16 and bf16: which of their inputs and outputs are halves, and a reference that takes them.
#pragma once

#include <functional>
#include <vector>

#include <belfry/graph/contexts.h>

namespace belfry {

/// Where input `i` may be a half: not where it stays f32. Of an input that repeats, the last definition counts.
bool may_be_half(const OpDef& op, std::size_t i);
/// What the op infers, and of halves what it would of f32, rounded but for wide outputs. Fails where it takes no halves, or where inputs differ.
std::vector<TensorType> inferred_types(InferContext& context);
/// The op's split; where it would give parts of a sum of halves, its inputs are read whole.
Split split_of(const OpDef& op, const SplitContext& context);
/// What an op builds (a gradient, another form) it builds in f32: its values widened, unless it only stores.
std::vector<Value> widened(const OpDef& op, std::vector<Value> values);
/// Another form of a node, which one of its op's rules builds in f32, in the node's dtypes and scope.
std::vector<Value> built_by(const std::function<std::vector<Value>(GradientContext&)>& rule, Graph& graph, const Node& node, const std::vector<Value>& inputs);
/// The value, cast where its dtype is another.
Value in_dtype(Value value, DType dtype);
/// Of halves it computes as of f32, and rounds each output once.
ReferenceRule taking_halves(ReferenceRule reference);

}  // namespace belfry
