// lower: what moves values becomes nodes: copies between spaces, sums on each device, stores of state.
#pragma once

#include <set>
#include <string>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// A source that reads nothing is computed wherever it is read: a constant is never copied. Those in `on_host` stay there.
void hold_sources(PlacedGraph& plan, const std::set<std::string>& on_host = {});
/// A variable's bytes go to the node that makes its new value if every reader of the old one comes before that node in the
/// plan's order; else the new value has a buffer of its own and a store at the end of the step.
void donate(PlacedGraph& plan);
/// Where a value in ranges is read whole, a node that gathers it on each of its devices; fetches carry the ranges themselves.
void insert_gathers(PlacedGraph& plan);
/// Each device joins its complete subtrees before anything is sent; not where all is on one device, or one tower each.
void insert_pre_aggregates(PlacedGraph& plan);
/// One copy per value and destination space. Joins and splits move values themselves; towers copy inside the tower.
/// UserError where no link joins the spaces that a value is to cross.
void insert_copies(PlacedGraph& plan);

}  // namespace belfry
