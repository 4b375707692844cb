// The bridge between the placer, which asks for kernels, and the tables of those that exist.
#pragma once

#include <belfry/executor/program.h>
#include <belfry/placer/place.h>

namespace belfry {

/// Names, for every query, the kernel that the table of its device kind chooses. Copies the tables. UserError for a kind
/// without a table.
KernelChooser chooser(const KernelTables& tables);

}  // namespace belfry
