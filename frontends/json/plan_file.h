// Plans as files: the graph's format with every decision, reason, wait and byte offset; read back to the same plan.
#pragma once

#include <belfry/frontends/json/graph_file.h>
#include <belfry/graph/fusion_group.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// The canonical text. Towers and devices stand in ranges, streams and frames that repeat stand once, so that it hardly
/// grows with the devices. UserError where two nodes of the plan have one name.
std::string write_plan(const PlacedGraph& plan, const TensorStore& tensors = {});

/// The plan with its graph (insertions taken out, cut and fused nodes as their members). Derived fields are taken as they
/// stand: `verify` judges them. UserErrors "file:line: /pointer: …" for what is no plan at all.
PlacedGraph read_plan(const std::string& text, const std::string& file, std::shared_ptr<const OpSet> ops, const TensorStore& tensors = {});

/// The graph after the passes as the plan's text gives it back.
std::shared_ptr<const Graph> graph_of_plan(const PlacedGraph& plan);

/// The decisions alone: towers, batch, combine, threads, order, and where each node is assigned; what is most frequent
/// becomes the last rules. place() of the plan's graph with it derives the plan again.
Placement placement_of(const PlacedGraph& plan);

/// What else place() must be told to derive the plan again.
struct PlanRequest {
  std::vector<std::pair<std::string, ValueId>> fetches;
  bool updates = true;
  std::vector<FusionGroup> groups;  ///< of fused nodes
};
PlanRequest request_of(const PlacedGraph& plan);

}  // namespace belfry
