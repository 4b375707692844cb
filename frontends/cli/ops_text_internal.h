// The ops of a library as text: signatures, attributes, and where each has kernels.
#pragma once

#include <string>

#include <belfry/executor/program.h>
#include <belfry/graph/op_def.h>

namespace belfry {

/// A line per op, by name: "matmul(a, b) -> y  transpose_a=false …  cpu gpu".
std::string ops_text(const OpSet& ops, const KernelTables& kernels);
/// All that one op says of itself: inputs, outputs, attributes with defaults and ranges, gradient, precision, kernels per kind of device.
std::string op_text(const OpDef& op, const KernelTables& kernels);

}  // namespace belfry
