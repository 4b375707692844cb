// A forecast as text for a person.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/forecast.h>

namespace belfry {

/// "4.21 ms", "310 us".
std::string human_seconds(double seconds);

/// Step time, how sure it is, devices, streams, links, the critical path by name, and why more devices would not help where
/// that is so. Devices that do the same stand in one line.
std::string describe(const PlacedGraph& plan, const Forecast& forecast);

/// A step of the plan as it was run: seconds of every launch in the order of the forecast's, and of the whole.
struct MeasuredRun {
  double seconds = 0;
  std::vector<double> launches;    ///< empty: only the whole is known
};
/// "measured 4.30 ms, forecast 4.21 ms: 2.1 % less", and the nodes that differ the most.
std::string describe_beside(const PlacedGraph& plan, const Forecast& forecast, const MeasuredRun& measured);

}  // namespace belfry
