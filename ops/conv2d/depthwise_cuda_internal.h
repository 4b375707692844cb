// Convolutions with a filter per channel: what the texts of their kernels share.
#pragma once

#include <cstdint>

#include <belfry/ops/cuda/generated_internal.h>
#include <belfry/ops/windows.h>

namespace belfry {

/// By the three tensors, whichever of them is the result.
struct Depthwise {
  Depthwise(const Attributes& a, const LocalType& of_x, const LocalType& filter, const LocalType& of_y)
      : x(of_x.shape), y(of_y.shape), channels(x[3]), s(x, filter.shape[0], filter.shape[1], a.integers("strides"), a) {}
  Extents x, y;
  std::int64_t channels;
  Sliding s;
};

/// The head of a text whose tensors are of `t`, and what all read elements by. F: halves are multiplied and added in f32.
Generated depthwise_head(const KernelRequest& r, const Depthwise& d, DType t);

/// STRIDE_H and STRIDE_W of its text.
Generated& strides(Generated& g, std::int64_t h, std::int64_t w);

/// As many elements as 16 bytes hold.
inline std::int64_t pack_of(DType t) { return 16 / static_cast<std::int64_t>(size_of(t)); }

/// The gradient of x where windows step over pixels.
Generated depthwise_gradient_of_steps(const KernelRequest& r, const Depthwise& d);

/// The gradient of filters: launches and scratch.
Generated depthwise_filter_gradient(const KernelRequest& r);
std::int64_t depthwise_filter_gradient_scratch(const KernelRequest& r);

}  // namespace belfry
