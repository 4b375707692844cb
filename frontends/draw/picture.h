// A plan or graph as a picture: what sits where, what crosses, how full, how long.
#pragma once

#include <string>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

struct PictureOptions {
  const Forecast* forecast = nullptr;   ///< busy shares, times and the timeline; null: none are shown
  const PlacedGraph* beside = nullptr;  ///< what sits elsewhere than in this plan is outlined
};

/// A column per device, bands from input to update: every node of a small plan; layers, with equal towers once, of a larger one;
/// of a plan that no drawing of nodes can show, bytes from device to device, memory and timeline. Equal plans give equal text.
std::string draw_svg(const PlacedGraph& plan, const PictureOptions& options = {});
/// A graph without a plan: one column.
std::string draw_svg(const Graph& graph);

/// The same as a page of its own that needs no other file: zoom, facts of every node, search, layers that open.
std::string draw_html(const PlacedGraph& plan, const PictureOptions& options = {});
std::string draw_html(const Graph& graph);

/// Where a node's towers, or its holders, sit in `plan` and sat in `before`: "tower 1: cpu:1 → cpu:0"; empty where nothing moved.
std::string moved_from(const PlacedGraph& plan, const PlanNode& node, const PlacedGraph& before, const PlanNode& old);

}  // namespace belfry
