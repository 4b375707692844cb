// A plan as text that a person reads: what sits where, what moves, in which order, and why.
#pragma once

#include <string>

#include <belfry/graph/plan/bound_plan.h>

namespace belfry {

struct DescribeOptions {
  bool memory = false;   ///< offsets, frames, waste beside the live maximum
  bool nodes = true;
};

/// First line: strategy, towers, global batch and shares; devices; then every node once in the plan's order with op, devices,
/// stream, phase, kernel, reason, and for inserted ones their cause and bytes.
std::string describe(const PlacedGraph& plan, const DescribeOptions& options = {});
/// Bytes per device: state, region, frames; planned total beside the live maximum.
std::string describe_memory(const PlacedGraph& plan);
/// "global batch 64 = 32 + 32".
std::string describe_batch(const TowerGraph& plan);
/// 1536 → "1.5 KiB".
std::string human_bytes(std::int64_t bytes);

}  // namespace belfry
