// Learning rates as values of the step: compositions of ops, so that they stand in the graph, its file and its plan.
#pragma once

#include <string>

#include <belfry/ops/emit.h>

namespace belfry {

/// Before a schedule begins its rate grows in a line from `from` to the schedule's first value; the schedule counts from the end of it.
struct WarmUp {
  std::int64_t steps = 0;  ///< 0: none
  double from = 0;
};

// Each takes a scalar of i64, the number of finished steps (Builder::step()), and gives a scalar of f64, t in the formulas being
// the steps since the end of the warm-up. The optimiser takes it in the dtype of its variable. UserError for steps below 1 and rates below 0.

struct ConstantRate {
  double rate = 0.01;
  WarmUp warm_up = {};
};
Value constant_rate(Value step, const ConstantRate& options, SourceLine at = SourceLine::here());

/// rate·factor^(t/steps), with `staircase` the exponent rounded down. factor = exp(−k) is TensorFlow's natural_exp_decay.
struct ExponentialDecay {
  double rate = 0.1;
  std::int64_t steps = 1000;
  double factor = 0.1;
  bool staircase = false;
  WarmUp warm_up = {};
};
Value exponential_decay(Value step, const ExponentialDecay& options, SourceLine at = SourceLine::here());

/// rate/(1 + decay·t/steps), with `staircase` t/steps rounded down.
struct InverseTimeDecay {
  double rate = 0.1;
  std::int64_t steps = 1000;
  double decay = 1;
  bool staircase = false;
  WarmUp warm_up = {};
};
Value inverse_time_decay(Value step, const InverseTimeDecay& options, SourceLine at = SourceLine::here());

/// rates[i] for the first i with t ≤ boundaries[i], else the last: one rate more than there are ascending boundaries.
struct PiecewiseConstant {
  Integers boundaries = {};
  Reals rates = {0.1};
  WarmUp warm_up = {};
};
Value piecewise_constant(Value step, const PiecewiseConstant& options, SourceLine at = SourceLine::here());

/// (rate − end)(1 − min(t, steps)/steps)^power + end; with `cycle` the steps are taken ⌈t/steps⌉ times (at least once).
struct PolynomialDecay {
  double rate = 0.1;
  std::int64_t steps = 1000;
  double end = 0.0001, power = 1;
  bool cycle = false;
  WarmUp warm_up = {};
};
Value polynomial_decay(Value step, const PolynomialDecay& options, SourceLine at = SourceLine::here());

/// rate·((1 − alpha)(1 + cos(π·min(t, steps)/steps))/2 + alpha) (Loshchilov & Hutter 2016).
struct CosineDecay {
  double rate = 0.1;
  std::int64_t steps = 1000;
  double alpha = 0;
  WarmUp warm_up = {};
};
Value cosine_decay(Value step, const CosineDecay& options, SourceLine at = SourceLine::here());

/// Cosine decay over `steps`, then again over t_mul times as many, from m_mul times the rate, and so on (Loshchilov & Hutter 2016).
struct CosineDecayRestarts {
  double rate = 0.1;
  std::int64_t steps = 1000;
  double t_mul = 2, m_mul = 1, alpha = 0;
  WarmUp warm_up = {};
};
Value cosine_decay_restarts(Value step, const CosineDecayRestarts& options, SourceLine at = SourceLine::here());

/// By epochs e = ⌊t/epoch_steps⌋: (most − start)·e/up + start while e < up, then `most` for `hold` epochs, then (most − least)·factor^(e − up − hold) + least.
/// The ramp of fine-tuning; there `most` is 5e-5 times the number of replicas (scaled_rate).
struct EpochRamp {
  std::int64_t epoch_steps = 1;
  double start = 1e-5, most = 5e-5, least = 1e-5, factor = 0.8;
  std::int64_t up = 5, hold = 0;
};
Value epoch_ramp(Value step, const EpochRamp& options, SourceLine at = SourceLine::here());

/// How a learning rate grows with the batch: in proportion (Goyal et al. 2017) or by the square root (Krizhevsky 2014).
enum class RateScaling { linear, sqrt };
/// rate·times or rate·√times: `times` replicas of the batch for which the rate was found. A graph does not know its towers, which a
/// placement decides: who builds it says how many there are meant to be.
double scaled_rate(double rate, double times, RateScaling scaling = RateScaling::linear);
/// The same for the batch that a step has, which a graph does know: `rate` was found for `rows` rows. A scalar of f64.
Value batch_scaled_rate(Graph& graph, double rate, double rows, RateScaling scaling = RateScaling::linear, SourceLine at = SourceLine::here());

/// The short form in files: "kind" names one of the functions above, its options are the fields of its struct, with those of a
/// warm-up as warmup_steps and warmup_from.
/// `spec` holds the kind and the options that are given.
Value schedule(Value step, const Attributes& spec);
/// UserError for a kind or options that `schedule` would refuse by name or type.
void check_schedule(const Attributes& spec);

}  // namespace belfry
