// The cutting problem of a tower graph on devices: what `layers` and `pipeline` cut, and `place --problem` writes.
#pragma once

#include <vector>

#include <belfry/graph/plan/cost.h>
#include <belfry/graph/plan/cut_problem.h>

namespace belfry {

struct StageOptions {
  std::vector<DeviceId> devices = {};   ///< one per part; those that are alike are a kind
  int rounds = 1;                       ///< towers that a step brings to each
  int in_flight = 1;                    ///< towers of which a device holds values for their gradients at once
  CutObjective objective = CutObjective::max_load;
};

struct TowerCut {
  CutProblem problem;                   ///< seconds of a step
  std::vector<int> nodes;               ///< of the tower graph, per node of the problem
  std::vector<DeviceId> devices;        ///< as the problem numbers them
  double room = 0;                      ///< bytes that the problem's memory leaves to what a launch reads and writes, the largest in the graph
};

/// Nodes that rules place, but for what every variable's update shares (rates, a common norm), which belongs to no part. Their
/// costs are those of forecasts: measured where the table has them, else the roofline. A node's class is that of what it
/// follows: a gradient its forward node, a slot or update its variable.
TowerCut cut_problem_of(const TowerGraph& graph, const Cluster& cluster, const CostTable& costs, const StageOptions& options);

/// The devices; then, as long as ways between neighbours differ, the longest stretch of the last list whose ways are all quicker than its slowest.
std::vector<std::vector<DeviceId>> stretches_of(const Cluster& cluster, std::vector<DeviceId> devices, int threads);

}  // namespace belfry
