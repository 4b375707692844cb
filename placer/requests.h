// requests: what a graph's nodes request that can be met, and what becomes of the rest.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>
#include <belfry/placer/place.h>

namespace belfry {

struct Requests {
  std::vector<PlacementRule> rules;
  std::map<std::string, std::string> unmet;  ///< node → why not; only under PlaceOptions::soft
};

/// The requests as rules behind those of the options. Soft ones that name a device that is not there, a GPU without a kernel for
/// the node, or one of `full`, are left out, with those that follow them. Without `soft` the first such device is a UserError.
Requests requests_of(const TowerGraph& graph, const Cluster& cluster, const PlaceOptions& options, const std::set<DeviceId>& full);
/// Devices of the plan whose memory does not do and on which something was requested, added to `full`; whether there are new ones.
bool add_full(const PlacedGraph& plan, const Requests& requests, std::set<DeviceId>& full);
/// Puts what was not met before the nodes' reasons, and tells the options' `warn`, a line per device.
void note_unmet(PlacedGraph& plan, const Requests& requests, const PlaceOptions& options);
/// UserError, naming node and rule, where a rule would decide a node's device that the cluster lacks.
void check_devices(const TowerGraph& graph, const std::vector<PlacementRule>& rules, const Cluster& cluster);

}  // namespace belfry
