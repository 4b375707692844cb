// A run as a Chrome trace: one track per stream; Perfetto opens it.
#pragma once

#include <string>
#include <vector>

#include <belfry/executor/run.h>

namespace belfry {

/// JSON text with a slice per step, named as in the plan with its tower, and a flow for every copy.
std::string chrome_trace(const BoundPlan& bound, const std::vector<TraceEntry>& trace);

}  // namespace belfry
