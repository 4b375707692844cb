// lower: what moves values becomes nodes: copies between spaces, sums on each device, stores of state.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/plan/links.h>
#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/readers.h>

namespace belfry {

/// Nodes whose place the kernels decide, by name: on the host, since GPUs have none for it; or, of several devices, on the first alone,
/// since those of others may give other bits, and all must have the same.
enum class FixedTo : std::uint8_t { host, first };
struct FixedNode {
  FixedTo to = FixedTo::host;
  std::string why;
};
using FixedNodes = std::map<std::string, FixedNode>;

/// A source that reads nothing is computed wherever it is read: a constant is never copied. Those that are fixed stay where they are.
void hold_sources(PlacedGraph& plan, const NumberLists& readers, const FixedNodes& fixed = {});
/// A variable's bytes go to the node that makes its new value if every reader of the old one comes before that node in the
/// plan's order; else the new value has a buffer of its own and a store at the end of the step.
void donate(PlacedGraph& plan, const NumberLists& readers);
/// Whether one of these devices has for another what must go by a CPU (Cluster::stage).
bool go_by_host(const Cluster& cluster, const std::vector<int>& from, const std::vector<int>& to);
/// What joins towers and adds nothing is on the host where its devices could not read all parts.
void join_on_host(PlacedGraph& plan);
/// Where a value in ranges is read whole, a node that gathers it on each of its devices, or on the host where they do not read each other's
/// memory; fetches carry the ranges themselves.
void insert_gathers(PlacedGraph& plan);
/// Where a device runs several towers in turn and it takes half as much, each adds its large parts to those of the towers before it, along the tree,
/// instead of keeping them for the join (`accumulates`). `all`: parts of any size, whatever it gains.
void insert_accumulations(PlacedGraph& plan, bool all);
/// Each device joins its complete subtrees before anything is sent; not where all is on one device, or one tower each.
void insert_pre_aggregates(PlacedGraph& plan);
/// Before sums by groups, those of each link group on one device of it.
void insert_group_sums(PlacedGraph& plan);
/// Before sums whose devices could not read all parts, those of each host on its CPU. UserError for a ring of such devices.
void insert_host_sums(PlacedGraph& plan);
/// UserError for sums of one bucket that are not added alike: on other devices, in ranges beside whole, in other ways or epochs.
void check_buckets(const PlacedGraph& plan, const std::vector<PlacementRule>& rules);
/// What lowering put into a plan that is placed anew: the next nodes and values take the memory of their texts and lists.
struct Spare {
  std::vector<PlanNode> nodes;
  std::vector<PlanValue> values;
};
/// One copy per value and destination space, by way of one on the host where a GPU cannot be read. Joins and splits move values themselves; towers copy inside the tower.
/// UserError where a value is to go between devices that are apart.
void insert_copies(PlacedGraph& plan, Apart& apart, Spare& spare);

/// Nodes with the number of the node that each comes behind, in that order; sets every value's maker.
void insert_behind(PlacedGraph& plan, std::vector<std::pair<int, PlanNode>> nodes);

}  // namespace belfry
