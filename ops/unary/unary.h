// Elementwise ops of one operand: neg, exp, log, sqrt, square, relu, tanh, sigmoid.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// One OpDef per row of the table: y = f(x); x: f32 or f64 (neg and square: integers too), any shape. relu's gradient at 0 is 0.
std::vector<OpDef> unary_defs();

Value neg(Value x, SourceLine at = SourceLine::here());
Value exp(Value x, SourceLine at = SourceLine::here());
Value log(Value x, SourceLine at = SourceLine::here());
Value sqrt(Value x, SourceLine at = SourceLine::here());
Value square(Value x, SourceLine at = SourceLine::here());
Value relu(Value x, SourceLine at = SourceLine::here());
Value tanh(Value x, SourceLine at = SourceLine::here());
Value sigmoid(Value x, SourceLine at = SourceLine::here());
/// dx of relu from its output: dy where y > 0, else 0.
Value relu_gradient(Value dy, Value y, SourceLine at = SourceLine::here());

}  // namespace belfry
