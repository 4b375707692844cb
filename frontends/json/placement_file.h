// Placement files (where things go) and cluster files (what there is to go to), kept in git beside a graph.
#pragma once

#include <optional>
#include <string>

#include <belfry/graph/plan/cluster.h>
#include <belfry/graph/plan/placement.h>

namespace belfry {

/// What a placement file says; what it leaves out is the strategy's or the command line's.
struct PlacementFile {
  std::optional<int> towers, threads;
  std::optional<std::int64_t> batch;
  std::optional<Combine> combine;
  std::optional<PhaseOrder> order;
  std::optional<Collectives> collectives;
  std::vector<std::string> recompute;
  std::vector<PlacementRule> rules;
};

/// {"belfry": 1, "towers": 2, "placement": [{"match": "tower_1/**", "device": "cpu:1"}, …]}; "device" is a list as on the
/// command line, or an array of devices. UserErrors "file:line: /pointer: …".
PlacementFile read_placement(const std::string& text, const std::string& file);
std::string write_placement(const Placement& placement);

/// {"belfry": 1, "cores": 8, "unlinked": [["host", "sim:3"]], "devices": [{"devices": "sim:0-3", "space", "streams", "memory"}]};
/// for forecasts of machines that nobody here has also what a device does a second and its links: see clusters/.
Cluster read_cluster(const std::string& text, const std::string& file);
std::string write_cluster(const Cluster& cluster);

}  // namespace belfry
