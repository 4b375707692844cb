// A step as 80 columns of text: a line per stream, what waits as dots, the critical path in capitals.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/forecast.h>

namespace belfry {

/// Letters say what fills most of a cell: i input and splits, c copies of variables, f forward, b backward, a aggregates and
/// fetches, u updates. Equal devices stand in one line.
std::string describe_timeline(const PlacedGraph& plan, const Forecast& step);

/// The forecast with the times of a run in place of its own (begin and seconds of every launch, from the first one's begin), and
/// the critical path of these.
Forecast as_measured(const BoundPlan& bound, const Forecast& forecast, const std::vector<std::pair<double, double>>& launches);

}  // namespace belfry
