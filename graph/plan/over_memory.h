// Whether a plan fits the memory of its cluster: known before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// "sim:0 needs 96 bytes, but has 64": devices over their own memory, and hosts whose cpu and sim devices together need more
/// than the host has. Empty: all fits.
std::vector<std::string> over_memory(const PlacedGraph& plan);
/// " (1.50 GiB)", to stand behind a number of bytes; empty below a GiB.
std::string in_gib(std::int64_t bytes);

}  // namespace belfry
