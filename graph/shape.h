// Shapes with symbols: a Dim is a factor times an optional named symbol, such as the batch.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <belfry/graph/dtype.h>

namespace belfry {

/// factor × symbol: 28, batch, 2·batch. A symbol stands for a positive size that is known when a plan is made.
struct Dim {
  std::int64_t factor = 1;
  std::string symbol;

  Dim(std::int64_t n = 1, std::string of = {}) : factor(n), symbol(std::move(of)) {}  // NOLINT: sizes read as dims
  bool symbolic() const { return !symbol.empty(); }
  /// The size where the symbol stands for `n`. UserError where it does not fit in 63 bits.
  std::int64_t at(std::int64_t n) const;
  bool operator==(const Dim&) const = default;
};

/// The symbol that builders use for the rows of a batch.
inline const Dim kBatch{1, "batch"};
inline Dim operator*(const Dim& d, std::int64_t n) { return {d.factor * n, d.symbol}; }
inline Dim operator*(std::int64_t n, const Dim& d) { return d * n; }

/// "28", "batch", "2*batch".
std::string to_string(const Dim& dim);
/// The inverse of to_string; UserError for other texts.
Dim parse_dim(std::string_view text);

using Shape = std::vector<Dim>;
/// A shape whose symbols are bound.
using Extents = std::vector<std::int64_t>;

/// "(batch, 28, 28, 1)".
std::string to_string(std::span<const Dim> shape);
std::string to_string(std::span<const std::int64_t> extents);

Extents extents_of(const Shape& shape, std::int64_t batch);
/// The product; 1 for a scalar. UserError where it does not fit in 63 bits.
std::int64_t elements(const Extents& extents);
/// Elements with one row and one of every symbol; stays at the largest number where there are more.
std::int64_t factor_of(const Shape& shape);
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 48;  ///< of a tensor of one row
/// Axes whose dim holds a symbol.
std::vector<int> symbolic_axes(const Shape& shape);

/// What elementwise ops give: shapes aligned at the right, 1 stretches. False where they do not fit.
bool broadcast(const std::vector<Shape>& shapes, Shape& out);

struct TensorType {
  DType dtype = f32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};
/// "f32(batch, 10)".
std::string to_string(const TensorType& type);

/// A tensor type whose symbols are bound: what a kernel sees of a value.
struct LocalType {
  DType dtype = f32;
  Extents shape;
  std::int64_t elements() const { return belfry::elements(shape); }
  /// UserError where they do not fit in 63 bits, and for negative sizes.
  std::int64_t bytes() const;
  bool operator==(const LocalType&) const = default;
};
std::string to_string(const LocalType& type);
/// Its symbols bound to `batch`.
LocalType local_type(const TensorType& type, std::int64_t batch);

}  // namespace belfry
