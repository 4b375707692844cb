// Elementwise ops of two operands, with broadcasting: add, sub, mul, div, maximum, minimum, squared_difference, pow, sigmoid_cross_entropy.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// One OpDef per row of the table: y = a ∘ b; a, b of one dtype (f32, f64, i32, i64), shapes that broadcast.
/// maximum and minimum send the gradient of a tie to the first operand. Integer division by zero is an error.
/// sigmoid_cross_entropy: f32 or f64. pow: f32 or f64; NaN where a is negative and b is no integer.
std::vector<OpDef> binary_defs();

Value add(Value a, Value b, SourceLine at = SourceLine::here());
Value sub(Value a, Value b, SourceLine at = SourceLine::here());
Value mul(Value a, Value b, SourceLine at = SourceLine::here());
Value div(Value a, Value b, SourceLine at = SourceLine::here());
Value maximum(Value a, Value b, SourceLine at = SourceLine::here());
Value minimum(Value a, Value b, SourceLine at = SourceLine::here());
/// (a − b)².
Value squared_difference(Value a, Value b, SourceLine at = SourceLine::here());
/// a to the power of b.
Value pow(Value a, Value b, SourceLine at = SourceLine::here());

/// −label·log σ(logits) − (1 − label)·log(1 − σ(logits)), element by element and without overflow.
Value sigmoid_cross_entropy(Value logits, Value label, SourceLine at = SourceLine::here());

Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator+(Value a, double b);
Value operator-(Value a, double b);
Value operator*(Value a, double b);
Value operator/(Value a, double b);
Value operator+(double a, Value b);
Value operator-(double a, Value b);
Value operator*(double a, Value b);
Value operator/(double a, Value b);
Value operator-(Value a);

/// The gradient of a broadcast: dy summed over the axes that were stretched, in the given shape.
Value sum_to(Value dy, const Shape& shape);

}  // namespace belfry
