// What of a plan is slower than it need be, and on purpose: said once, before it is looked for.
#pragma once

#include <string>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// A line for each that is there: more threads than cores, nodes that run as their reference, nodes of towers on the host between those on GPUs, rows that towers join
/// because an op reads all of them, bytes between memory spaces (unless `links` are told already), variables that nothing trains. Empty: there is nothing to say.
std::string describe_slow(const PlacedGraph& plan, bool links = true);

}  // namespace belfry
