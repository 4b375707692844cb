// Forecasts as JSON for machines, and traces of runs read back to stand beside them.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/forecast.h>

namespace belfry {

/// {"belfry": 1, "seconds", "rows_per_second", "devices", "streams", "links", "path", "sources", "why_not_more"}; every launch
/// with its times where `launches` is set.
std::string write_forecast(const PlacedGraph& plan, const Forecast& forecast, bool launches = false);

/// Seconds of every launch of the plan, in the order of its streams, from a Chrome trace that a run of it wrote; behind them
/// those of the whole. UserError for a trace of another plan.
std::vector<double> read_trace(const std::string& text, const std::string& file, const PlacedGraph& plan, const Forecast& forecast);

}  // namespace belfry
