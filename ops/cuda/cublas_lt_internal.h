// The one place that calls cuBLASLt: matrix products, prepared once and then only launched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <belfry/graph/dtype.h>
#include <belfry/ops/cuda/workspace_internal.h>

namespace belfry {
class CudaToolkit;
}

namespace belfry::cublas_lt {

/// Steps in elements from row to row, from column to column (one of the two is 1) and from product to product.
struct Matrix {
  std::int64_t row_step = 1, column_step = 1, batch_step = 0;
};

/// What is done to a sum before it is stored: a bias per column n is added, then what the name says.
enum class Epilogue : std::uint8_t { none, bias, bias_gelu_tanh };

/// y(batch, m, n) = Σ_k a(batch, m, k)·b(batch, k, n), f32 multiplied as f32 unless it may be rounded to `tf32`, halves summed in f32; with `accumulate` added to what y holds, or to a matrix that lies as y does.
struct Product {
  DType dtype = f32;           ///< of a and b
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  Matrix a, b, y;
  bool accumulate = false;
  std::int64_t alignment = 4;  ///< in bytes, of all addresses
  DType result = dtype;        ///< of y and the bias: f32 where a and b are halves, or theirs
  Epilogue epilogue = Epilogue::none;
  bool tf32 = false;
};

/// The same product as cuBLAS counts, column by column: y = first·second, or with the operands left as they are where y itself lies column by column.
struct ColumnMajor {
  struct Matrix {
    std::int64_t rows = 1, columns = 1, step = 1, batch_step = 0;  ///< as it lies; `step` from column to column
    bool transposed = false;                                       ///< before it is multiplied
  };
  bool swapped = false;  ///< `first` is a; else b
  Matrix first, second, y;
};
ColumnMajor column_major(const Product& product);

class Multiplication {
 public:
  virtual ~Multiplication() = default;
  /// `added`: what it accumulates on; null: what y holds.
  virtual void run(const void* a, const void* b, void* y, std::byte* scratch, void* stream, const void* bias = nullptr, const void* added = nullptr) = 0;
};

/// What a product may use of scratch: long sums are split over blocks only where there is some.
inline constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;
inline constexpr std::int64_t kScratchBytes = kWorkspaceBytes + kWorkspaceAlignment;

/// Those that cuBLASLt forecasts to be fastest for a product: what is worth timing.
inline constexpr std::size_t kMostAlgorithms = 16;

/// Belong to the thread that made them, whose context is current. DeviceError where cuBLASLt cannot be used or has nothing for it. `algorithm`: one of algorithm_names(); empty: the first.
std::unique_ptr<Multiplication> multiplication(CudaToolkit& toolkit, const Product& product, const std::string& algorithm = {});
/// Best first, each of which repeats its bits.
std::vector<std::string> algorithm_names(CudaToolkit& toolkit, const Product& product);

/// Whether Belfry was built with cuBLASLt's header; without it the two above throw.
bool built();

}  // namespace belfry::cublas_lt
