// Cross entropy from logits, one loss per example; classes are the last axis.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// softmax_cross_entropy: loss = −Σ label·log softmax(logits); label: probabilities of the logits' type.
/// sparse_softmax_cross_entropy: loss = −log softmax(logits)[label]; label: class indices (…) as i32, i64 or u8; one that is
/// no class is an error. Both give log_probability (…, classes) as a second output where it is read.
std::vector<OpDef> softmax_cross_entropy_defs();
Value softmax_cross_entropy(Value logits, Value label, SourceLine at = SourceLine::here());
Value sparse_softmax_cross_entropy(Value logits, Value label, SourceLine at = SourceLine::here());

}  // namespace belfry
