// The bridge between the placer, which asks for kernels, and the tables of those that exist.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/program.h>
#include <belfry/placer/place.h>

namespace belfry {

/// Names, for every query, the kernel that the table of its device kind chooses. Copies the tables. UserError for a kind
/// without a table. `engines`: which engine of a kernel to name, by engine_key. Kernels round f32 to TF32 where the graph's precision says so, and give up their bits where
/// they may be `nondeterministic`.
KernelChooser chooser(const KernelTables& tables, const std::map<std::string, std::string>& engines = {}, bool nondeterministic = false);

/// The same, but for kinds without a table the kernel is "roofline", which exists nowhere: for plans that are only forecast.
KernelChooser or_roofline(const KernelTables& tables, const std::map<std::string, std::string>& engines = {}, bool nondeterministic = false);

/// Names the kernels that a plan has for nodes of the same name, op, local types and kind of device; the tables choose for all
/// others. UserError where a kernel of the plan is not here, or refuses what it runs in the plan.
KernelChooser keeping(const PlacedGraph& plan, const KernelTables& tables, bool nondeterministic = false);

/// The nodes that run several kernels on the same local types, which `keeping` does not tell apart.
std::vector<std::string> several_kernels(const PlacedGraph& plan);

/// The fused groups of a plan in a graph that has their members, by name: the plan's own graph, or that for inference. Of those that are `found` there, the
/// ones besides that have a node which the plan's graph has not: of them the plan decides nothing.
std::vector<FusionGroup> groups_of(const PlacedGraph& plan, const Graph& graph, const std::vector<FusionGroup>& found = {});

}  // namespace belfry
