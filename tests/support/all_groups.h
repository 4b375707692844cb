// The fused groups of CPUs and those of GPUs in one list, so that a test has both.
#pragma once

#include <vector>

#include <belfry/ops/fusions.h>

namespace belfry::test {

inline std::vector<FusionGroup> all_groups(const Graph& graph) {
  std::vector<FusionGroup> out = find_cpu_groups(graph);
  for (FusionGroup& group : find_gpu_groups(graph)) out.push_back(std::move(group));
  return out;
}

}  // namespace belfry::test
