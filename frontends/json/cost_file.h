// What was measured on a machine, as a file: `belfry bench --calibrate` writes it, forecasts read it.
#pragma once

#include <string>

#include <belfry/graph/plan/cost.h>

namespace belfry {

/// {"belfry": 1, "machine", "dispatch", "handoff", "wake", "step", "memmove", "kernels": [{"key": "…", "measured": [[rows, seconds, flops,
/// bytes], …]}]}; a line per kernel. UserErrors "file:line: /pointer: …".
CostTable read_costs(const std::string& text, const std::string& file);
std::string write_costs(const CostTable& table);

}  // namespace belfry
