// What a graph's products are computed on.
#pragma once

#include <string_view>

#include <belfry/graph/dtype.h>

namespace belfry {

/// bf16 or f16: the pass mixed_precision makes products, and what follows them, of halves. tf32: GPUs may round f32 to TF32 (10 bits behind the point) before they multiply it; elsewhere as f32.
struct GraphPrecision {
  DType dtype = f32;
  bool rounds = false;  ///< to TF32; of f32 alone
  constexpr GraphPrecision() = default;
  constexpr GraphPrecision(DType of, bool to_tf32 = false) : dtype(of), rounds(to_tf32) {}
  bool operator==(const GraphPrecision&) const = default;
};
inline constexpr GraphPrecision tf32{f32, true};

/// "f32", "tf32", "bf16" or "f16".
std::string_view name_of(const GraphPrecision& precision);
/// The inverse of name_of; UserError for other texts.
GraphPrecision parse_precision(std::string_view text);

}  // namespace belfry
