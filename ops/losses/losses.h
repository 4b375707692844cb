// Losses per example, and their weighted mean. A training loss is mean() of one of them.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// All take prediction and label of one shape and give the loss of each example: the mean over the last axis, or the sum where it
/// is said; of rank 1, each element is an example. A label of integers or bools is cast to the prediction's dtype. Formulas and
/// constants are those of Keras 3: probabilities are held between 1e-7 and 1 − 1e-7. UserError where the shapes differ.
/// Softmax cross entropy from logits has ops of its own (softmax_cross_entropy.h), sigmoid_cross_entropy is elementwise (binary.h).

struct CrossEntropyOptions {
  bool from_logits = false;    ///< the prediction holds logits instead of probabilities
  double label_smoothing = 0;  ///< s in [0, 1]: labels become label·(1 − s) + s/classes (binary: s/2)
};
/// −label·log p − (1 − label)·log(1 − p); from logits by sigmoid_cross_entropy.
Value binary_cross_entropy(Value prediction, Value label, const CrossEntropyOptions& options = {}, SourceLine at = SourceLine::here());
/// −Σ label·log p over the classes, p divided by its sum first; from logits by softmax_cross_entropy.
Value categorical_cross_entropy(Value prediction, Value label, const CrossEntropyOptions& options = {}, SourceLine at = SourceLine::here());
/// (prediction − label)².
Value mean_squared_error(Value prediction, Value label, SourceLine at = SourceLine::here());
/// |prediction − label|.
Value mean_absolute_error(Value prediction, Value label, SourceLine at = SourceLine::here());
/// e²/2 where |e| ≤ delta, else delta·(|e| − delta/2), e = prediction − label; delta > 0.
Value huber(Value prediction, Value label, double delta = 1, SourceLine at = SourceLine::here());
/// Σ label·log(label / prediction), both held between 1e-7 and 1.
Value kl_divergence(Value prediction, Value label, SourceLine at = SourceLine::here());
/// max(1 − label·prediction, 0); labels are −1 or 1.
Value hinge(Value prediction, Value label, SourceLine at = SourceLine::here());
/// max(1 − label·prediction, 0)².
Value squared_hinge(Value prediction, Value label, SourceLine at = SourceLine::here());

/// Σ weight·loss / Σ weight over the whole batch, whatever `combine` says; 0 where all weights are 0. The weights have the
/// shape of the losses. Keras's sum_over_batch_size, which divides by the number of losses instead, is mean(loss * weight).
/// As a metric over many batches: Builder::metric(name, Σ weight·loss, Σ weight).
Value weighted_mean(Value loss, Value weight, SourceLine at = SourceLine::here());

}  // namespace belfry
