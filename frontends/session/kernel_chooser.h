// The bridge between placer and executor: which kernel a node gets, asked of the kernel tables.
#pragma once

#include <belfry/executor/program.h>
#include <belfry/placer/place.h>

namespace belfry {

/// Pure functions of the query; the tables must outlive what is returned.
KernelChooser chooser(const KernelTables& tables);

}  // namespace belfry
