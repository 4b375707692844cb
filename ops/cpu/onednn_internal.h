// The one place that calls oneDNN: convolutions and matrix products that are created once and then only run.
#pragma once

#include <memory>
#include <span>

#include <belfry/executor/kernel.h>
#include <belfry/graph/shape.h>

namespace belfry::onednn {

/// x and y in nhwc, the filter in hwio, i being the inputs of one group. Buffers of a run, in order: forward x, filter, bias (where there is one), y;
/// input_gradient dy, filter, dx; filter_gradient x, dy, dfilter.
struct Conv {
  enum Kind { forward, input_gradient, filter_gradient };
  Kind kind = forward;
  Extents x, filter, y;
  Extents strides, before, after;  ///< over height and width; padding before and behind
  Extents dilations;               ///< from tap to tap
  std::int64_t groups = 1;
  bool bias = false;               ///< of the filter's dtype
  DType of_x = f32, of_filter = f32, of_y = f32;  ///< f32 or bf16, summed in f32; what is made of bf16 may be either
};

/// y(…, m, n) = Σ_k a(…, m, k)·b(…, k, n) over any number of batch axes; with `accumulate` added to what y holds. Strides in elements, in
/// the order batch axes, row, column; 0 for a batch axis that a or b lacks. Buffers: a, b, y.
struct Product {
  Extents batch;
  std::int64_t m = 1, n = 1, k = 1;
  Extents a, b, y;
  bool accumulate = false;
  DType dtype = f32, result = f32;  ///< of a and b, and of y: f32, or bf16 that are summed in f32
};

/// Made for a number of threads, and run with exactly these.
class Primitive {
 public:
  virtual ~Primitive() = default;
  virtual std::int64_t scratch_bytes() const = 0;
  /// Where oneDNN runs it, as its own name says ("brgconv:avx512_core").
  virtual std::string implementation() const = 0;
  /// One call at a time.
  virtual void run(std::span<const std::byte* const> buffers, std::byte* scratch) = 0;
};

/// Whether the processor multiplies bf16 itself; elsewhere f32 is faster.
bool has_bf16();

/// Null where oneDNN has nothing but its reference for it. DeviceError if it fails otherwise.
std::unique_ptr<Primitive> make(const Conv& conv, int threads);
std::unique_ptr<Primitive> make(const Product& product, int threads);

}  // namespace belfry::onednn

namespace belfry {

/// Accepts f32, and bf16 where the processor multiplies them.
Support onednn_takes(const KernelRequest& r);

}  // namespace belfry
