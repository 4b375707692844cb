// Sums of products by Einstein's convention, made of sums, transpositions and matrix products.
#pragma once

#include <string>
#include <vector>

#include <belfry/ops/emit.h>

namespace belfry {

/// "bqhd,bkhd->bhqk": a letter per axis of each operand and of y; letters that y lacks are summed. Without an arrow y has the
/// letters that stand once, in their order. Several operands are multiplied from left to right. f32 or f64.
/// Diagonals ("ii") and ellipses are refused.
Value einsum(const std::string& equation, const std::vector<Value>& operands, SourceLine at = SourceLine::here());

}  // namespace belfry
