// Convolutions of pictures with few channels: how their windows are cut, and what their kernels' texts share.
#pragma once

#include <string>

#include <belfry/ops/cuda/generated_internal.h>

namespace belfry {

/// A word is what a lane gives to a product of a warp: two halves, or one f32. The row of a window is a run of neighbours in a row of x, so its words are read as they lie; the words of all its
/// rows, one behind the other, are what is summed over. A tile is `th` rows of `tw` pixels of y in one picture. All of it is decided by shape and dtype.
struct FewChannels {
  FewChannels(const Attributes& a, const LocalType& x, const LocalType& filter, const LocalType& y);

  std::string refusal;  ///< why no tile can be cut; empty: all below holds
  std::int64_t per = 1, filters = 0, run = 0, words = 0, all = 0;  ///< elements in a word; elements, then words in a row of a window; words in a window
  std::int64_t lead = 0;                                          ///< elements that are staged before the first window, so that words begin at even elements of a row
  std::int64_t tw = 0, th = 1, pieces = 1, bands = 1, tiles = 0;   ///< tiles beside and above each other in a picture, and of all
  std::int64_t rows = 0, pitch = 0, copy = 0;                      ///< of x in shared memory: rows, words of each, and where a copy begins that lies half a word earlier; 0: none is read
  std::int64_t shared_words = 0;

  /// The head of both texts and what they share.
  void describe(Generated& g, const Attributes& a, const LocalType& x, const LocalType& filter, const LocalType& y) const;
};

/// The kernel's op by its three tensors, whichever of them is the result; y may be f32 of halves. Empty: it is taken. `rounds`: of f32 that may be rounded, else of halves.
std::string objection_to_few_channels(const Attributes& a, const LocalType& x, const LocalType& filter, const LocalType& y, bool rounds);

/// The gradient of filters: launches and scratch.
Generated few_channels_filter_gradient(const KernelRequest& r);
std::int64_t few_channels_filter_gradient_scratch(const KernelRequest& r);
/// Why it takes other forms than the forward pass; empty: it takes them.
std::string objection_to_few_channels_gradient(const KernelRequest& r);

}  // namespace belfry
