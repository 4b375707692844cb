// A contraction as matrix products in strided batches: pure data, which a test evaluates by hand.
#pragma once

#include <string>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/ops/cuda/cublas_lt_internal.h>

namespace belfry {

struct Gemm {
  /// One launch: what its three addresses lie behind the operands' (elements), and whether it adds to y.
  struct Part {
    std::int64_t a = 0, b = 0, y = 0;
    bool add = false;
  };
  cublas_lt::Product product;
  std::vector<Part> parts;
  std::string refusal;
};

/// Batch axes beyond the longest, and summed axes that lie apart, are parts; more than that is refused.
inline constexpr std::size_t kMostParts = 64;
Gemm gemm_of(const KernelRequest& request);
/// Of a group of a product, a bias and what follows: one launch, or refused.
Gemm biased_gemm_of(const KernelRequest& request, cublas_lt::Epilogue epilogue);

}  // namespace belfry
