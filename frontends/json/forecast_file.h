// Forecasts as JSON for machines, and traces of runs read back to stand beside them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/plan/forecast.h>

namespace belfry {

/// {"belfry": 1, "strategy", "options", "seconds", "rows_per_second", "devices", "streams", "links", "path", "sources", "why_not_more"}; every launch
/// with its times where `launches` is set. `candidates`: lines of JSON, one for each strategy that was looked at.
std::string write_forecast(const PlacedGraph& plan, const Forecast& forecast, bool launches = false, const std::vector<std::string>& candidates = {});
/// {"belfry": 1, "seconds", "path", "launches"}: a step that was forecast, or one with a run's times.
std::string write_timeline(const PlacedGraph& plan, const Forecast& step);

/// Begin and seconds of every launch of the plan, in the order of its streams, from a Chrome trace that a run of it wrote; the
/// first to begin does so at 0. UserError for a trace of another plan.
std::vector<std::pair<double, double>> read_trace_times(const std::string& text, const std::string& file, const PlacedGraph& plan, const Forecast& forecast);

/// The seconds alone; behind them those of the whole.
std::vector<double> read_trace(const std::string& text, const std::string& file, const PlacedGraph& plan, const Forecast& forecast);

}  // namespace belfry
