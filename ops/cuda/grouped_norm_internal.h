// What kernels of norms make of a group: the norm as it would stand alone, and what the tree beside it reads.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/ops/cuda/generated_internal.h>

namespace belfry {

/// A norm or its gradient alone, or in a group: before the tree that reads its first output, or with `fed` behind one that makes its last input, where there is one.
struct GroupedNorm {
  GroupedNorm(const KernelRequest& request, bool fed);
  KernelRequest own;                ///< of the norm; outputs stand in it as in the group's
  const Node* core = nullptr;       ///< of a group
  bool tree = false;                ///< is beside it
  std::size_t first = 0;            ///< of the norm's inputs among the group's
  std::vector<std::size_t> others;  ///< what the tree reads of them
};

/// Whether it is a group of `op` and a tree of which all that it reads and makes has the type of x, with expressions in `table`.
Support takes_group_of(std::string_view op, bool fed, const KernelRequest& request, const KernelTable& table);

/// A request for a norm's gradient by what stands where among its outputs: dx or what a tree behind it makes of that, dgamma and dbeta, the sum of what is made over rows, and that as halves; and what a tree before it makes, where that is kept.
struct GradientOutputs {
  GradientOutputs(const KernelRequest& request, bool fed);
  bool wanted(std::ptrdiff_t at) const { return at >= 0 && static_cast<std::size_t>(at) < rest.wanted.size() && rest.wanted[static_cast<std::size_t>(at)]; }
  /// "" where the members beside read what is made alone, and are the sum of its rows, for a type that `adds`, and a cast to halves.
  std::string objection(const KernelRequest& request, bool (*adds)(const TensorType&)) const;
  /// What the text calls them: MADE (where HAS_MADE is 1), DGAMMA and DBETA, null where nobody reads them; where ADDED is 1 the type Y and ADDED_TO, where AS_HALVES is 1 the type H and HALVES. Gives those that lie as x does.
  std::vector<std::size_t> name(Generated& g, const KernelRequest& request) const;

  KernelRequest rest;  ///< without what stands beside
  std::ptrdiff_t made = 0, dgamma = 1, dbeta = 2, dy = -1;
  std::optional<std::size_t> sum, halves;  ///< members
};

}  // namespace belfry
