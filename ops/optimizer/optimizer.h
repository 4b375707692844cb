// Updates of variables: sgd, momentum, adam. Each is one op that reads its gradient whole.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// sgd: w' = w − rate·g.
/// momentum: m' = momentum·m + g; w' = w − rate·m', or with nesterov w − rate·(g + momentum·m').
/// adam (Kingma & Ba 2014, "epsilon hat"): m' = m + (g − m)(1 − beta1); v' = v + (g² − v)(1 − beta2);
///   w' = w − rate·m'/(√v' + epsilon), with the rate of adam_rate.
/// adam_rate: rate·√(1 − beta2ᵗ)/(1 − beta1ᵗ), t = step + 1; `powers` is "float32" (Keras 3: powers of the betas rounded
///   to f32, in the rate's type) or "exact" (TF 1: powers in f64).
std::vector<OpDef> optimizer_defs();

}  // namespace belfry
