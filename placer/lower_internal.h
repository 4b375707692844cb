// What lowering puts into a plan: nodes and values like those that they bring elsewhere.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/readers.h>

namespace belfry {

/// Makes an inserted node of one that is as new: it reads `input`, with the cause's user and role.
void describe(PlanNode& node, const PlanNode& cause, const std::string& name, const char* op, ValueIndex input, Scope scope, std::string_view reason);
PlanNode inserted_node(const PlanNode& cause, const std::string& name, const char* op, ValueIndex input, Scope scope, std::string_view reason);

/// A new value of the same type as another.
ValueIndex value_like(PlacedGraph& plan, ValueIndex v, const std::string& name, SplitState state);
/// The name of a value as a node's: "x:1" as "x..1", which no node of a user's has.
void make_plain(std::string& name);

/// The CPUs of the devices' hosts, one of each that has some.
DeviceList cpus_beside(const Cluster& cluster, const std::vector<int>& devices);

/// Makes room behind the nodes `behind(k)`, in their order, and calls `fill(node, k)` for each while what it comes behind has its place.
template <class Behind, class Fill>
void insert_nodes(PlacedGraph& plan, std::size_t count, Behind behind, Fill fill) {
  if (!count) return;
  std::size_t i = plan.nodes.size(), to = i + count;
  plan.nodes.reserve(to);
  plan.nodes.resize(to);
  for (std::size_t k = count; k-- > 0;) {  // from behind, so that none is moved twice
    while (static_cast<int>(i) > behind(k) + 1) plan.nodes[--to] = std::move(plan.nodes[--i]);
    fill(plan.nodes[--to], k);
  }
  reindex(plan);
}

}  // namespace belfry
