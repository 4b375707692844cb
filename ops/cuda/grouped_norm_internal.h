// What kernels of norms make of a group: the norm as it would stand alone, and what the tree beside it reads.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <belfry/executor/kernel.h>

namespace belfry {

/// A norm or its gradient alone, or in a group: before the tree that reads its first output, or with `fed` behind one that makes its last input.
struct GroupedNorm {
  GroupedNorm(const KernelRequest& request, bool fed);
  KernelRequest own;                ///< of the norm; outputs stand in it as in the group's
  const Node* core = nullptr;       ///< of a group
  std::size_t first = 0;            ///< of the norm's inputs among the group's
  std::vector<std::size_t> others;  ///< what the tree reads of them
};

/// Whether it is a group of `op` and a tree of which all that it reads and makes has the type of x, with expressions in `table`.
Support takes_group_of(std::string_view op, bool fed, const KernelRequest& request, const KernelTable& table);

}  // namespace belfry
