// A contraction as matrix products in strided batches: pure data, which a test evaluates by hand.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// Products that are added up, in order, each on what the ones before have left in y.
struct GemmSum {
  struct Term {
    Gemm gemm;
    std::size_t a = 0;         ///< which input of the group; its b is the next
    std::ptrdiff_t bias = -1;
  };
  std::vector<Term> terms;
  std::ptrdiff_t other = -1;   ///< the input of y's form that the first is added to
  std::string refusal;
};

/// Batch axes beyond the longest, and summed axes that lie apart, are parts; more than that is refused.
inline constexpr std::size_t kMostParts = 64;
Gemm gemm_of(const KernelRequest& request);
/// Of a group of a product, a bias and what follows: one launch, or refused.
Gemm biased_gemm_of(const KernelRequest& request, cublas_lt::Epilogue epilogue);
/// Of a group of products and their sum (kMatmulAdd): each as above.
GemmSum gemm_sum_of(const KernelRequest& request);

}  // namespace belfry
