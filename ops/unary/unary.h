// Elementwise ops of one operand: roots, powers of e, roundings, activations.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// One OpDef per row of the table: y = f(x); x: f32 or f64 (neg, abs, sign and square: i32 and i64 too), any shape. Slopes at kinks: 0 for
/// abs, relu and relu6 (at 0, and at 6); clip passes the gradient at both edges; sign and the roundings have slope 0 everywhere.
/// Beside them relu_gradient, relu6_gradient, leaky_relu_gradient, elu_gradient, gelu_gradient and clip_gradient: dx from dy and x or y.
std::vector<OpDef> unary_defs();

Value neg(Value x, SourceLine at = SourceLine::here());
Value abs(Value x, SourceLine at = SourceLine::here());
/// 1, 0 or -1; NaN stays.
Value sign(Value x, SourceLine at = SourceLine::here());
Value square(Value x, SourceLine at = SourceLine::here());
Value floor(Value x, SourceLine at = SourceLine::here());
Value ceil(Value x, SourceLine at = SourceLine::here());
/// To the nearest integer, halves to the even one.
Value round(Value x, SourceLine at = SourceLine::here());
Value exp(Value x, SourceLine at = SourceLine::here());
Value log(Value x, SourceLine at = SourceLine::here());
Value log1p(Value x, SourceLine at = SourceLine::here());
Value sqrt(Value x, SourceLine at = SourceLine::here());
Value rsqrt(Value x, SourceLine at = SourceLine::here());
Value reciprocal(Value x, SourceLine at = SourceLine::here());
Value sin(Value x, SourceLine at = SourceLine::here());
Value cos(Value x, SourceLine at = SourceLine::here());
Value erf(Value x, SourceLine at = SourceLine::here());
Value tanh(Value x, SourceLine at = SourceLine::here());
Value sigmoid(Value x, SourceLine at = SourceLine::here());
/// log(1 + exp(x)), without overflow.
Value softplus(Value x, SourceLine at = SourceLine::here());
/// x·sigmoid(x), also called swish.
Value silu(Value x, SourceLine at = SourceLine::here());
/// x·Φ(x) by erf, or the approximation by tanh.
Value gelu(Value x, bool by_tanh = false, SourceLine at = SourceLine::here());
Value relu(Value x, SourceLine at = SourceLine::here());
Value relu6(Value x, SourceLine at = SourceLine::here());
Value leaky_relu(Value x, double slope = 0.2, SourceLine at = SourceLine::here());
/// x where x ≥ 0, else alpha·(exp(x) − 1); alpha > 0.
Value elu(Value x, double alpha = 1, SourceLine at = SourceLine::here());
/// elu scaled so that deviation 1 is kept; the constants are those of its paper.
Value selu(Value x, SourceLine at = SourceLine::here());
/// x·relu6(x + 3) / 6.
Value hard_swish(Value x, SourceLine at = SourceLine::here());
/// x held between min and max.
Value clip(Value x, double min, double max, SourceLine at = SourceLine::here());
/// dx of relu from its output: dy where y > 0, else 0.
Value relu_gradient(Value dy, Value y, SourceLine at = SourceLine::here());

}  // namespace belfry
