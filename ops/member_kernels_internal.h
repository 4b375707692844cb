// A fused kind by the kernels of its members, one after the other: for devices or forms that have no kernel for the whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/kernel.h>

namespace belfry {

/// Whether the members are those of a tree: elementwise, of one shape.
bool of_one_shape(const KernelRequest& request);

/// Each by the best kernel that `table` has for it. In a chain the first member writes the output and the others work on it in place; what
/// passes between members of another form lies in the scratch. `references`: a member without a kernel is computed by its reference, as on
/// the host; else the whole is refused. No `members`: a tree, or one with another node, of whatever members.
Kernel in_turn(std::string kind, std::vector<std::string> members, const std::shared_ptr<const KernelTable>& table, bool references);

}  // namespace belfry
