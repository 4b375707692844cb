// What differs between two plans: decisions first, then what follows from them.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// One line each: "arithmetic: …" (attributes and inputs of the graphs' nodes, what is fetched, differentiated and updated), "decision: …" (towers, batch, combine, threads, order, cluster, where a node is assigned), then
/// "follows: …" (what strategy made it, nodes put in or taken out, those inside fused ones too, sources and moves that went along, kernels; waits, order, offsets and bytes
/// summed up). Empty for plans that do the same.
struct PlanDiff {
  std::vector<std::string> arithmetic, decisions, follows;
  bool empty() const { return arithmetic.empty() && decisions.empty() && follows.empty(); }
};
/// How the inputs and variables of two graphs differ, "the input 'x' is … and …" and how many more do; empty where they do not.
struct UnlikeGraphs {
  std::string how;
  bool types = false;  ///< one of them has another type: no values of one graph serve the other
};
UnlikeGraphs unlike_graphs(const Graph& a, const Graph& b);
PlanDiff diff_plans(const PlacedGraph& a, const PlacedGraph& b);
std::string to_string(const PlanDiff& diff);

}  // namespace belfry
