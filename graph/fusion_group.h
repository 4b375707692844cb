// Nodes of a graph that become one kernel: what a pattern finder proposes and expand takes or leaves.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/value.h>

namespace belfry {

/// In order; the last one's output is the group's.
struct FusionGroup {
  std::string kind;
  std::vector<NodeId> members;
};

}  // namespace belfry
