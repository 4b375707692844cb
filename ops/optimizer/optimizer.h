// Updates of variables: an op per optimiser, which reads its gradient whole and gives the new value and the new slots.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// The largest beta of Adam and its kin: one of 1 is nothing that can be corrected, and f32 has none between.
inline constexpr double kLargestDecay = 0.9999999;

/// Inputs: w, the slots, the gradient (all of one type, f32 or f64), the rate (a scalar), and at will `decay`: a scalar, with which w is
/// first replaced by w − decay·w (decoupled weight decay, Loshchilov & Hutter 2017; decay = learning rate · weight decay). Outputs: w', the slots anew.
/// sgd: w' = w − rate·g.
/// momentum: m' = momentum·m + g; w' = w − rate·m', or with nesterov w − rate·(g + momentum·m').
/// adam (Kingma & Ba 2014, "epsilon hat"): m' = m + (g − m)(1 − beta1); v' = v + (g² − v)(1 − beta2);
///   w' = w − rate·m'/(√v' + epsilon), with the rate of adam_rate.
/// amsgrad (Reddi et al. 2018): adam with top' = max(top, v') in place of v' under the root.
/// adamax (Kingma & Ba 2014, section 7.1): m' as adam; u' = max(beta2·u, |g|); w' = w − rate·m'/(u' + epsilon), rate/(1 − beta1ᵗ).
/// rmsprop (Hinton 2012): v' = rho·v + (1 − rho)g²; step = rate·g/√(v' + epsilon), or with epsilon_inside false rate·g/(√v' + epsilon); w' = w − step.
///   rmsprop_centered: mean' = rho·mean + (1 − rho)g, and v' − mean'² under the root. rmsprop_momentum: m' = momentum·m + step; w' = w − m'.
/// adagrad (Duchi et al. 2011): sum' = sum + g²; w' = w − rate·g/√(sum' + epsilon), or epsilon outside.
/// adadelta (Zeiler 2012): v' = rho·v + (1 − rho)g²; step = √(u + epsilon)·g/√(v' + epsilon); u' = rho·u + (1 − rho)step²; w' = w − rate·step.
/// ftrl (McMahan et al. 2013, as TensorFlow has it), p = −power: sum' = sum + g²; z' = z + g + 2·l2_shrinkage·w − (sum'ᵖ − sumᵖ)/rate·w;
///   w' = (clip(z', −l1, l1) − z')/((sum'ᵖ + beta)/rate + 2·l2). The rate must not be 0.
/// lion (Chen et al. 2023): w' = w − rate·sign(beta1·m + (1 − beta1)g); m' = beta2·m + (1 − beta2)g.
/// lamb (You et al. 2019): m', v' as adam; direction = m̂/(√v̂ + epsilon) + weight_decay·w, from m' and v' by the scalars scale = √(1 − beta2ᵗ)/(1 − beta1ᵗ)
///   and root = √(1 − beta2ᵗ); then w' = w − rate·(|w|/|direction|)·direction by sgd, the ratio 1 where a norm is 0.
/// adam_rate: rate·√(1 − beta2ᵗ)/(1 − beta1ᵗ), t = step + 1; `powers` is "float32" (Keras 3: powers of the betas rounded
///   to f32, in the rate's type) or "exact" (TF 1: powers in f64).
/// moving_average: average' = average − weight·(average − value), weight = 1 − decay.
std::vector<OpDef> optimizer_defs();

/// Adafactor (Shazeer & Stern 2018, as Keras has it), of other ops; t counts from 1 and is of w's dtype: v = kept·v + (1 − kept)(g² + epsilon1),
/// kept = 1 − t^beta2_decay. From rank 2 on only the means of v over the last axis (r) and over the one before (c) are kept, and v = r/mean(r)·c, the mean
/// along r's last axis. u = g/√v; w' = w − bounded·max(epsilon2, rms(w))/max(1, rms(u)/clip_threshold)·u by sgd, where bounded is the rate, at most 1/√t.
struct Factored {
  Value direction, rate;     ///< u, and what it is times
  std::vector<Value> slots;  ///< anew: r and c, or v
};
/// The shapes of the slots: two from rank 2 on.
std::vector<Shape> factored_slots(const Shape& w);
/// `bounded` and `kept` are scalars; attributes: epsilon1, epsilon2, clip_threshold.
Factored adafactor(Value w, const std::vector<Value>& slots, Value gradient, Value bounded, Value kept, const Attributes& attributes);

/// The name of a variable's moving average, as TensorFlow 1 has it: "w/ExponentialMovingAverage".
std::string average_of(const std::string& variable);
/// The variable whose average has this name; the name itself where it is no average's.
std::string averaged_by(const std::string& average);

}  // namespace belfry
