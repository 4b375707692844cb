// A fused kind by the kernels of its members, one after the other: for devices or forms that have no kernel for the whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/kernel.h>

namespace belfry {

/// The first member writes the output, the others work on it in place; each by the best kernel that `table` has for it. `references`:
/// a member without one is computed by its reference, as on the host; else the whole is refused.
Kernel in_turn(std::string kind, std::vector<std::string> members, const std::shared_ptr<const KernelTable>& table, bool references);

}  // namespace belfry
