// Values in ranges: each holder of a node has a contiguous share of the elements of what the node makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// Ranges begin at multiples of so many elements, so that those of every dtype are aligned.
inline constexpr std::int64_t kRangeUnit = 64;

/// Elements of one of so many holders: shares of whole units, the first ones a unit longer.
Range element_range(std::int64_t elements, std::size_t holders, std::size_t number);

/// Elements of a value that a node makes or reads on a device. In ranges those of its share, where the value has as many
/// elements as the node's outputs; else all.
Range range_on(const PlacedGraph& plan, const PlanNode& n, ValueIndex v, int device);

/// A value of a node outside the towers on a device: its local type, of one dimension where it is a range.
LocalType type_on(const PlacedGraph& plan, const PlanNode& n, ValueIndex v, int device);

/// Reads the ranges that devices hold of a value, and makes or carries all of it.
bool joins_ranges(const PlacedGraph& plan, const PlanNode& n);

/// Why a node cannot be in ranges over so many devices; empty: it can.
std::string objection_to_ranges(const TowerGraph& graph, const PlanNode& n, std::size_t devices);

}  // namespace belfry
