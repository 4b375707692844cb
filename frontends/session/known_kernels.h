// Whether the kernels that a plan names exist: asked before it runs, without opening the library of those of GPUs.
#pragma once

#include <string>
#include <vector>

#include <belfry/executor/program.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Objections, as of the verifier, to kernels that are not there for their op: in the tables, and of GPUs without one by `is_gpu_kernel`.
std::vector<std::string> unknown_kernels(const PlacedGraph& plan, const KernelTables& tables);

/// `verify`, and then the names of kernels.
std::vector<std::string> verify(const PlacedGraph& plan, const KernelTables& tables);

}  // namespace belfry
