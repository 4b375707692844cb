// Ops on f16 and bf16: which of their inputs and outputs are halves, and a reference that takes them.
#pragma once

#include <belfry/graph/contexts.h>

namespace belfry {

/// Where input `i` may be a half: not where it stays f32. Of an input that repeats, the last definition counts.
bool may_be_half(const OpDef& op, std::size_t i);
/// The one half that the inputs are of, f32 if there is none. Fails where the op takes none, or where they differ.
DType half_of(const InferContext& context);
/// Types inferred as of f32 become those of halves, but for wide outputs.
void give_halves(const OpDef& op, const Attributes& attributes, DType half, std::vector<TensorType>& outputs);
/// Of halves it computes as of f32, and rounds each output once.
ReferenceRule taking_halves(ReferenceRule reference);

}  // namespace belfry
