// Reverse-mode differentiation: gradient nodes are built by the ops' own rules.
#pragma once

#include <vector>

#include <belfry/graph/graph.h>

namespace belfry {

/// Gradients of the sum of the losses (scalars) with respect to `wanted`, an empty Value where the losses do not depend on
/// one. Contributions are joined by one add_n per value. `begin`: per loss what its gradient begins with, in place of 1. UserError where a path
/// crosses an op without a gradient.
std::vector<Value> gradients(Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& wanted, const std::vector<Value>& begin = {});

}  // namespace belfry
