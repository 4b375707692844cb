// The format of dnn-partitioning: what `place --problem=dnn-partitioning` writes, and an answer to it in the place of a placement file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/placer/cut/tower_cut.h>

namespace belfry {

/// A plan's nodes in that format: what is no CPU is an accelerator; where there are CPUs alone, they are.
TowerCut partitioning_of(const PlacedGraph& plan, const CostTable& costs);
/// Where --placement names an answer in that format, its numbers become rules in the place of that option. The problem is that of the other arguments.
void take_split(const Source& source, PlacementArguments& arguments, std::int64_t batch, const std::vector<std::string>& fetches, const std::shared_ptr<const Library>& library);
/// Whether the text is such an answer.
bool is_split(const std::string& text, const std::string& file);

}  // namespace belfry
