// Which of the groups that a pattern finder proposes expand makes nodes of.
#pragma once

#include <map>
#include <set>
#include <vector>

#include <belfry/graph/fusion_group.h>
#include <belfry/placer/expand.h>
#include <belfry/placer/states.h>

namespace belfry {

struct TakenGroups {
  std::map<NodeId, const FusionGroup*> of;  ///< per member; of the options' groups
  std::set<NodeId> twins;                   ///< inner members that stand beside their group once more
};

/// A group is taken if no core node outside it reads an inner value, its members lie on one request, and states do not cut it.
TakenGroups taken_groups(const Graph& graph, const ExpandOptions& options, const NodeStates& states, const std::vector<bool>& core, const std::vector<bool>& live);

}  // namespace belfry
