// Recomputation: what backward reads of the forward pass is computed again there instead of being kept.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/cluster.h>
#include <belfry/graph/plan/placement.h>
#include <belfry/graph/plan/tower_graph.h>

namespace belfry {

/// Names of the towers' nodes to compute again, in list order, so that of the values that backward reads only those between
/// stretches of about equal bytes are kept (Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost). The last stretch,
/// which backward begins with, is kept whole; so is what `leaves` its device, since another one has a copy: computed again, it would have to be
/// copied again. UserError for fewer than 2 stretches.
std::vector<std::string> nodes_to_recompute(const TowerGraph& towers, int stretches, const std::vector<bool>& leaves);
/// Per node, whether the forward pass of half of the towers or more reads its value on another device, as these rules assign them. UserError as
/// `assign`.
std::vector<bool> leaves_device(const TowerGraph& towers, const std::vector<PlacementRule>& rules, const Cluster& cluster);

/// Adds for each of the named nodes that backward reads, or that such a node needs, a second one, "name.again", just before its
/// first reader in backward, which then reads that one. No bit changes. UserError for a name that is no such node; one of the
/// graph's that nothing needs here is passed over.
void recompute(TowerGraph& towers, const std::vector<std::string>& names);

}  // namespace belfry
