#include <belfry/graph/error.h>
#include <belfry/ops/cuda/cublas_lt_internal.h>

namespace belfry::cublas_lt {

namespace {

/// A matrix (rows, columns) as it lies column by column: itself, or the transpose of what lies there.
ColumnMajor::Matrix stored(const Matrix& m, std::int64_t rows, std::int64_t columns) {
  // Either step of an axis with one element is free; cuBLAS wants columns that do not overlap.
  if (m.row_step == 1 || rows == 1) return {rows, columns, columns == 1 ? rows : m.column_step, m.batch_step, false};
  if (m.column_step == 1 || columns == 1) return {columns, rows, m.row_step, m.batch_step, true};
  throw InternalError("a matrix for cuBLASLt has neither its rows nor its columns side by side");
}

Matrix turned(const Matrix& m) { return {m.column_step, m.row_step, m.batch_step}; }

}  // namespace

ColumnMajor column_major(const Product& p) {
  // Row by row, y lies as its transpose does column by column: yᵀ = bᵀ·aᵀ.
  if (p.n > 1 && p.y.column_step != 1) return {true, stored(p.a, p.m, p.k), stored(p.b, p.k, p.n), stored(p.y, p.m, p.n)};
  return {false, stored(turned(p.b), p.n, p.k), stored(turned(p.a), p.k, p.m), stored(turned(p.y), p.n, p.m)};
}

}  // namespace belfry::cublas_lt
