// What is in use at once by the launches of a forecast, counted another way: buffer by buffer of the bound plan.
#pragma once

#include <cstdint>
#include <vector>

#include <belfry/graph/plan/forecast.h>

namespace belfry::test {

/// Per device, variables included: each buffer from the begin of the launch that writes it to the end of the last that reads it, or until
/// one that is written over it begins; what is fetched to the end of the step.
std::vector<std::int64_t> live_bytes(const PlacedGraph& plan, const Forecast& forecast);

/// The first device of a group of which the forecast says something else; empty: none.
std::string unlike_live_bytes(const PlacedGraph& plan, const Forecast& forecast);

}  // namespace belfry::test
